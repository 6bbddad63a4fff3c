"""Every case from the field has tests, and tests/CASES.md names them."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
CASES = range(1, 53)
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| (.+) \|$", re.MULTILINE)
NUMBERED = re.compile(r"test_cases?_((?:\d+_)+)")


def named() -> dict[int, list[str]]:
    return {
        int(number): re.findall(r"`([^`]+)`", tests) for number, tests in ROW.findall((HERE / "CASES.md").read_text())
    }


def functions_of(path: Path) -> set[str]:
    found = (
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {node.name for node in found if node.name.startswith("test_")}


def test_every_case_has_tests_that_exist() -> None:
    cases = named()
    assert sorted(cases) == list(CASES)
    for number, tests in cases.items():
        assert tests, number
        for test in tests:
            path, _, name = test.partition("::")
            assert functions_of(HERE / path) & ({name} if name else functions_of(HERE / path)), test


def test_every_numbered_test_is_named() -> None:
    cases = named()
    missing = []
    for path in sorted(HERE.rglob("test_*.py")):
        for name in sorted(functions_of(path)):
            numbers = NUMBERED.match(name)
            for number in map(int, numbers[1].split("_")[:-1]) if numbers else ():
                if f"{path.relative_to(HERE)}::{name}" not in cases[number]:
                    missing.append((number, name))
    assert missing == []
