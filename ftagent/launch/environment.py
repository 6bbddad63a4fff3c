"""The agent's environment by allow-list: what it needs to work stays, credentials and cloud switches do not.

Values stay in memory; only names are ever reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

# names whose values an agent and its tools need, by kind
_NAMES = """
    PATH HOME SHELL USER LOGNAME HOSTNAME PWD OLDPWD SHLVL TERM LANG LANGUAGE TZ TMPDIR TMP TEMP UMASK CI
    SSH_AUTH_SOCK SSH_AGENT_PID SSH_CONNECTION SSH_CLIENT SSH_TTY GPG_TTY GNUPGHOME DBUS_SESSION_BUS_ADDRESS
    EDITOR VISUAL PAGER LESS LESSOPEN MANPAGER MANPATH INFOPATH BROWSER
    DISPLAY WAYLAND_DISPLAY XAUTHORITY DESKTOP_SESSION
    COLORTERM COLORFGBG NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE LS_COLORS GREP_COLORS
    TERM_PROGRAM TERM_PROGRAM_VERSION TERM_SESSION_ID TERMINFO TERMINFO_DIRS COLUMNS LINES STY WINDOWID WT_SESSION
    VTE_VERSION KONSOLE_VERSION GNOME_TERMINAL_SCREEN INSIDE_EMACS NVIM WSL_DISTRO_NAME WSL_INTEROP
    GIT_EDITOR GIT_PAGER GIT_SSH GIT_SSH_COMMAND GIT_DIR GIT_WORK_TREE GIT_CONFIG_GLOBAL GIT_TERMINAL_PROMPT
    VIRTUAL_ENV VIRTUAL_ENV_PROMPT MAMBA_ROOT_PREFIX PIPX_HOME PIPENV_ACTIVE
    NODE_PATH NODE_OPTIONS NODE_ENV VOLTA_HOME BUN_INSTALL DENO_DIR PNPM_HOME COREPACK_HOME
    JAVA_HOME JDK_HOME MAVEN_HOME MAVEN_OPTS GRADLE_HOME GRADLE_USER_HOME ANDROID_HOME ANDROID_SDK_ROOT
    GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOFLAGS GOPROXY GOPRIVATE GOTOOLCHAIN
    CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN RUSTFLAGS CARGO_TARGET_DIR RUST_BACKTRACE
    GEM_HOME GEM_PATH RUBYOPT BUNDLE_PATH RBENV_ROOT DOTNET_ROOT PERL5LIB LUA_PATH LUA_CPATH OPAM_SWITCH_PREFIX
    CC CXX CPP AR LD CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH
    PKG_CONFIG_PATH LD_LIBRARY_PATH LD_PRELOAD DYLD_LIBRARY_PATH CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES OMP_NUM_THREADS
    DOCKER_HOST DOCKER_CONTEXT DOCKER_BUILDKIT COMPOSE_PROJECT_NAME DIRENV_DIR
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_CA_BUNDLE CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE
    NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO NIX_SSL_CERT_FILE HTTPLIB2_CA_CERTS CARGO_HTTP_CAINFO
    npm_config_cafile NPM_CONFIG_CAFILE
    CLAUDE_CONFIG_DIR CODEX_HOME QWEN_HOME QWEN_RUNTIME_DIR
"""
_EXACT = frozenset(_NAMES.split())
_PREFIXES = (
    "LC_", "XDG_", "TMUX", "KITTY_", "WEZTERM_", "ITERM_", "ALACRITTY_", "GHOSTTY_", "ZELLIJ", "PYTHON", "CONDA_", "PYENV_",
    "UV_", "PIP_", "POETRY_", "NVM_", "FNM_", "ASDF_", "MISE_", "SDKMAN_", "CMAKE_", "NIX_", "GIT_AUTHOR_", "GIT_COMMITTER_",
)  # fmt: skip
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy")
_CREDENTIAL_NAME = re.compile(
    r"(^|_)(PAT|AUTH|BEARER|COOKIE)(_|$|\d)|(KEY|TOKEN)S?(_|$|\d)|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
    r"|APIKEY|ACCESS_KEY|^AWS_|^GOOGLE_|^GCLOUD|^CLOUDSDK_|^AZURE_|^GH_|^GITHUB_|^GITLAB_|^HF_|^VERTEX|^BEDROCK"
    r"|^CLAUDE_CODE_USE_|_USE_(BEDROCK|VERTEX|FOUNDRY)$"
    r"|^(ANTHROPIC|OPENAI|GEMINI|OPENROUTER|DEEPSEEK|MISTRAL|GROQ|XAI|COHERE|TOGETHER|FIREWORKS|PERPLEXITY|CEREBRAS)_",
    re.IGNORECASE,
)
_CREDENTIAL_VALUE = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@\s:]*:[^/@\s]+@", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/@\s]+@", re.IGNORECASE)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def mask_urls(text: str) -> str:
    """With `****` in place of user and password in each URL: an agent gets its proxy whole, a person reads none of it."""
    return _PASSWORD_IN_URL.sub(r"\1****@", text)


def looks_like_credential(name: str, value: str) -> bool:
    """By name, or a value with a password in a URL. Proxies are not meant: the agent's own tools need them."""
    if name.lower() in PROXIES or name in ("SSH_AUTH_SOCK",):
        return False
    return bool(_CREDENTIAL_NAME.search(name) or _CREDENTIAL_VALUE.match(value))


def _allowed(name: str, value: str) -> bool:
    if name in _EXACT or name.lower() in PROXIES:
        return True
    return name.startswith(_PREFIXES) and not looks_like_credential(name, value)


@dataclass(frozen=True, slots=True)
class FilteredEnvironment:
    """`kept` goes to the agent; `dropped_credentials` are the names a person should read, sorted."""

    kept: dict[str, str]
    dropped_credentials: list[str]


def filter_environment(
    env: Mapping[str, str], keep: Collection[str] = (), scrub: Collection[str] = ()
) -> FilteredEnvironment:
    """Pure. `keep` lets a variable through that the list would drop; `scrub` takes one out that it would keep."""
    kept = {name: value for name, value in env.items() if name not in scrub and (name in keep or _allowed(name, value))}
    dropped = sorted(name for name, value in env.items() if name not in kept and looks_like_credential(name, value))
    return FilteredEnvironment(kept, dropped)


def loopback_past_proxies(env: Mapping[str, str]) -> dict[str, str]:
    """`no_proxy` variables to set so that a configured proxy never sees the engine; {} where there is no proxy."""
    if not any(env.get(name) or env.get(name.upper()) for name in PROXIES[:3]):
        return {}
    present = env.get("no_proxy") or env.get("NO_PROXY") or ""
    entries = [entry.strip() for entry in present.split(",") if entry.strip()]
    text = ",".join([*entries, *(host for host in _LOOPBACK if host not in entries)])
    return {"NO_PROXY": text, "no_proxy": text}
