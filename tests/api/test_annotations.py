"""Own names that changed: both spellings are read, and written where another process reads the former one."""

from __future__ import annotations

import pytest

from windlass.api import annotations as names
from windlass.api.devices import node_annotation
from windlass.api.devices.node_annotation import DeviceRecord

RENAMED = sorted(names.FORMER_NAMES)


@pytest.mark.parametrize("name", RENAMED)
def test_former_spelling_is_read_if_the_new_one_is_absent(name: str) -> None:
    former = names.FORMER_NAMES[name]
    assert names.read({former: "old"}, name) == "old"
    assert names.read({former: "old", name: "new"}, name) == "new"
    assert names.read({former: "old", name: ""}, name) == ""
    assert names.read({}, name) is None


@pytest.mark.parametrize("name", RENAMED)
def test_both_spellings_are_written(name: str) -> None:
    assert names.both(name, "x") == {name: "x", names.FORMER_NAMES[name]: "x"}
    assert names.both(name, None) == {name: None, names.FORMER_NAMES[name]: None}


def test_no_former_spelling_is_in_use_for_something_else() -> None:
    current = {value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
    assert not current & set(names.FORMER_NAMES.values())
    assert set(names.FORMER_NAMES) <= current


def test_devices_of_a_node_are_read_in_the_former_spelling() -> None:
    text = node_annotation.write([DeviceRecord(0, "GPU-0", model="T4")])
    assert node_annotation.read({"windlass.dev/cards": text}).cards == (DeviceRecord(0, "GPU-0", model="T4"),)
