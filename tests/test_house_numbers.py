"""Every measured number in README.md and docs/ is the one in the kept results."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import figures  # noqa: E402


@pytest.mark.parametrize("path", figures.texts(), ids=lambda p: p.name)
def test_numbers_match_the_kept_results(path: Path) -> None:
    text = path.read_text()
    assert figures.refreshed(text) == text, f"{path.name}: run `make figures`"


def test_a_changed_number_is_noticed() -> None:
    text = (ROOT / "README.md").read_text()
    match = figures.NUMBER.search(text)
    assert match, "README.md shows no measured number"
    broken = text.replace(match[0], match[0].replace(f"-->{match['text']}<!--", "-->987654<!--"), 1)
    assert figures.refreshed(broken) == text
