"""The tool behind ``make mutate``: which tests meet a mutant, and how it takes the original's place."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parent.parent / "tools"

SOURCE = """
LIMIT = 3

class Book:
    least: int = 1

    def above(self, number: int) -> bool:
        if number > LIMIT:
            return True
        return any(number < one for one in (-7,
            -8))

def twice(number: int, by: int = 2) -> int:
    return number * by
"""


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def victim(tmp_path: Path) -> ModuleType:
    path = tmp_path / "victim_of_mutants.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("victim_of_mutants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("number > LIMIT", "number >= LIMIT"),
        ("number < one", "number <= one"),
        ("number * by", "number + by"),
    ],
)
def test_a_function_is_replaced_where_others_hold_it_already(was: str, now: str, victim: ModuleType) -> None:
    above, twice = victim.Book().above, victim.twice
    before = (above(3), above(-7), twice(3))
    assert tool("mutant_bench").put_in_place(victim.__file__, SOURCE, SOURCE.replace(was, now))
    assert (above(3), above(-7), twice(3)) != before


@pytest.mark.parametrize("was", ["LIMIT = 3", "least: int = 1", "by: int = 2"])
def test_what_ran_at_the_import_needs_a_new_process(was: str, victim: ModuleType) -> None:
    assert not tool("mutant_bench").put_in_place(victim.__file__, SOURCE, SOURCE.replace(was, was + "0"))
    assert victim.twice(3) == 6


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        (2, []),
        (5, []),
        (8, [(8, 8), (8, 11)]),
        (9, [(9, 9), (8, 11)]),
        (11, [(10, 11), (8, 11)]),
        (13, [(14, 14)]),
        (14, [(14, 14), (14, 14)]),
    ],
)
def test_the_tests_of_a_statement_then_of_its_function(line: int, spans: list[tuple[int, int]]) -> None:
    assert tool("mutate").around(SOURCE, line) == spans


def test_the_quickest_tests_of_the_statement_come_first() -> None:
    mutate = tool("mutate")
    lines = {"a.py": {"9": ["slow", "quick"], "8": ["slow", "quick", "other"], "14": ["twice"]}}
    survey = mutate.Survey({"seconds": {"slow": 2.0, "quick": 0.5}, "lines": lines})
    assert survey.tests_of("a.py", SOURCE, 9) == [("quick", 10.0), ("slow", 25.0)]
    assert [name for name, _ in survey.tests_of("a.py", SOURCE, 11)] == ["other", "quick", "slow"]
    assert {name for name, _ in survey.tests_of("a.py", SOURCE, 2)} == {"other", "quick", "slow", "twice"}
