"""The device ledger: no device twice, whatever happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.node.ledger import DeviceBusy, DeviceLedger


def test_a_device_is_given_once(tmp_path: Path) -> None:
    ledger = DeviceLedger(tmp_path / "d.json")
    ledger.claim("u1", "ns/a", ["0", "1"])
    ledger.claim("u1", "ns/a", ["0", "1"])
    with pytest.raises(DeviceBusy, match="device 1 is held by pod ns/a"):
        ledger.claim("u2", "ns/b", ["2", "1"])
    assert "2" not in ledger.held  # all or nothing
    assert ledger.release("u1") == ["0", "1"]
    ledger.claim("u2", "ns/b", ["2", "1"])


def test_it_outlives_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    DeviceLedger(path).claim("u1", "ns/a", ["0"])
    again = DeviceLedger(path)
    with pytest.raises(DeviceBusy):
        again.claim("u2", "ns/b", ["0"])
    assert again.keep_only({"u2"}) == ["0"]
    assert json.loads(path.read_text()) == {}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.sets(st.integers(0, 3))), max_size=25))
def test_never_two_holders(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, set[int]]]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "d.json"
    held: dict[str, set[str]] = {}
    for uid, take, numbers in steps:
        ledger = DeviceLedger(path)  # a new agent at every step
        wanted = [str(n) for n in sorted(numbers)]
        if not take:
            assert set(ledger.release(uid)) == held.pop(uid, set())
            continue
        taken = set().union(*(d for other, d in held.items() if other != uid))
        if taken & set(wanted):
            with pytest.raises(DeviceBusy):
                ledger.claim(uid, uid, wanted)
        else:
            ledger.claim(uid, uid, wanted)
            held.setdefault(uid, set()).update(wanted)
        assert {d: h["uid"] for d, h in ledger.held.items()} == {d: u for u, ds in held.items() for d in ds}
