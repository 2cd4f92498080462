"""The road of a plain gang stays short: ``tools/road.py`` counts the calls from its objects to its binds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "road.py"
MOST_CALLS = 510
"""Maximum number of calls. Python 3.11 counts the most: later versions make no function of a comprehension."""
MOST_FILES = 72
"""Maximum number of files."""


@pytest.fixture(scope="module")
def road() -> ModuleType:
    spec = importlib.util.spec_from_file_location("road", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["road"] = module
    spec.loader.exec_module(module)
    return module


def test_plain_gang_takes_few_calls_and_files(road: ModuleType) -> None:
    found = road.measure()
    assert len(found.calls) <= MOST_CALLS
    assert len(found.files) <= MOST_FILES


def test_every_run_counts_the_same_calls(road: ModuleType) -> None:
    assert road.measure().record() == road.measure().record()
