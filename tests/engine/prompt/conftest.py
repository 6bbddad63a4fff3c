"""The two shared models' languages; tests that let them remember turns make their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.prompt.language import Language


@pytest.fixture(scope="session")
def hybrid(models_dir: Path) -> Language:
    return Language.load(models_dir / "tiny-hybrid")


@pytest.fixture(scope="session")
def smollm(models_dir: Path) -> Language:
    return Language.load(models_dir / "smollm2-moe")


@pytest.fixture(params=["hybrid", "smollm"])
def language(request: pytest.FixtureRequest) -> Language:
    found: Language = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["tiny-hybrid", "smollm2-moe"])
def fresh(request: pytest.FixtureRequest, models_dir: Path) -> Language:
    """A language that remembers nothing yet."""
    return Language.load(models_dir / request.param)
