"""Limits of the road of a plain gang: ``tools/road.py`` counts the calls from its objects to its binds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "road.py"
MAX_CALLS = 314
"""Maximum number of calls. Python 3.11 counts the most: later versions make no function of a comprehension."""
MAX_FUNCTIONS = 220
"""Maximum number of functions."""
MAX_FILES = 48
"""Maximum number of files."""
OPTIONAL = (
    "engine/actions/preempt.py",
    "engine/actions/stale_gang.py",
    "engine/actions/timeshare.py",
    "engine/backfill/",
    "engine/device_allocation/",
    "engine/devices/share_table.py",
    "engine/diagnosis/recheck.py",
    "engine/placement/domain_selector.py",
    "engine/preemption/",
    "engine/queues/decayed_usage.py",
    "engine/queues/flavors.py",
    "engine/quiet_cycle.py",
    "engine/state/numa_usage.py",
    "engine/state/relocation_holds.py",
    "engine/timesharing/",
    "engine/victims/",
    "plugins/timeshare/",
)
"""Files of features that a plain gang does not use."""


@pytest.fixture(scope="module")
def road() -> ModuleType:
    spec = importlib.util.spec_from_file_location("road", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["road"] = module
    spec.loader.exec_module(module)
    return module


def test_plain_gang_takes_few_calls_functions_and_files(road: ModuleType) -> None:
    found = road.measure()
    assert len(found.calls) <= MAX_CALLS
    assert len(found.functions) <= MAX_FUNCTIONS
    assert len(found.files) <= MAX_FILES


def test_plain_gang_calls_no_optional_feature(road: ModuleType) -> None:
    assert [file for file in road.measure().files if file.startswith(OPTIONAL)] == []


def test_every_run_counts_the_same_calls(road: ModuleType) -> None:
    assert road.measure().record() == road.measure().record()
