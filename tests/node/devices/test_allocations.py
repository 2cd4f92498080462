"""The device ledger: nothing twice, whatever happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.node.devices.allocations import DeviceAllocations, DeviceBusy, DeviceHold


def whole(*names: str) -> list[DeviceHold]:
    return [DeviceHold(name) for name in names]


def test_a_device_is_given_once(tmp_path: Path) -> None:
    allocations = DeviceAllocations(tmp_path / "d.json")
    allocations.allocate("u1", "ns/a", whole("0", "1"))
    allocations.allocate("u1", "ns/a", whole("0", "1"))
    assert len(allocations.held) == 2
    with pytest.raises(DeviceBusy, match="device 1 is held by pod ns/a"):
        allocations.allocate("u2", "ns/b", whole("2", "1"))
    assert not allocations.holds_of("u2")  # all or nothing
    assert allocations.release("u1") == whole("0", "1")
    allocations.allocate("u2", "ns/b", whole("2", "1"))


def test_it_outlives_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    claims = [DeviceHold("0", 500, 1024), DeviceHold("1", 0, 0, "1g.10gb", 6, 1)]
    DeviceAllocations(path).allocate("u1", "ns/a", claims)
    again = DeviceAllocations(path)
    assert list(again.holds_of("u1")) == claims
    with pytest.raises(DeviceBusy):
        again.allocate("u2", "ns/b", whole("0"))
    assert again.retain({"u2"}) == claims
    assert json.loads(path.read_text()) == {"claims": []}


@pytest.mark.parametrize("left", ["", "{", "null", "[3]", '{"claims": [{"uid": "u"}]}', '{"0": 1}'])
def test_of_a_file_that_cannot_be_read_nothing_is_known(tmp_path: Path, left: str) -> None:
    path = tmp_path / "d.json"
    path.write_text(left)
    allocations = DeviceAllocations(path)
    assert allocations.held == ()
    assert allocations.lost.startswith(f"{path} cannot be read (")
    allocations.allocate("u1", "ns/a", whole("0"))
    again = DeviceAllocations(path)
    assert (again.lost, again.holds_of("u1")) == ("", (DeviceHold("0"),))


def test_the_file_of_earlier_releases_is_read(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"0": {"uid": "u1", "pod": "ns/a"}}))
    allocations = DeviceAllocations(path)
    assert allocations.holds_of("u1") == (DeviceHold("0"),)
    with pytest.raises(DeviceBusy):
        allocations.allocate("u2", "ns/b", [DeviceHold("0", 100, 1)])


def test_two_containers_may_have_equal_shares_of_one_card(tmp_path: Path) -> None:
    allocations = DeviceAllocations(tmp_path / "d.json")
    twice = [DeviceHold("0", 400, 1000), DeviceHold("0", 400, 1000)]
    allocations.allocate("u1", "ns/a", twice)
    allocations.allocate("u1", "ns/a", twice)
    assert list(allocations.holds_of("u1")) == twice
    with pytest.raises(DeviceBusy, match="110 %"):
        allocations.allocate("u2", "ns/b", [DeviceHold("0", 300, 1000)])


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (DeviceHold("0", 0, 10240), DeviceHold("0", 0, 10240), None),
        (DeviceHold("0", 0, 10240), DeviceHold("0", 0, 14337), "24577 of 24576 MiB"),
        (DeviceHold("0", 600), DeviceHold("0", 401), "100.1 %"),
        (DeviceHold("0", 600), DeviceHold("0"), "held by pod ns/a"),
        (DeviceHold("0", 600), DeviceHold("0", 0, 0, "1g.5gb", 0, 1), "shared or partitioned"),
        (
            DeviceHold("0", 0, 0, "2g.10gb", 4, 2),
            DeviceHold("0", 0, 0, "1g.5gb", 5, 1),
            "it overlaps slice 2g.10gb at 4",
        ),
        (DeviceHold("0", 0, 0, "2g.10gb", 4, 2), DeviceHold("0", 0, 0, "1g.5gb", 6, 1), None),
        (DeviceHold("0", 0, 0, "1g.5gb", -2, 0), DeviceHold("0", 0, 0, "1g.5gb", -3, 0), None),
    ],
)
def test_conflicts_of_holds_on_one_device(
    tmp_path: Path, first: DeviceHold, second: DeviceHold, words: str | None
) -> None:
    allocations = DeviceAllocations(tmp_path / "d.json")
    memory = {"0": 24576}
    allocations.allocate("u1", "ns/a", [first], memory)
    if words is None:
        allocations.allocate("u2", "ns/b", [second], memory)
    else:
        with pytest.raises(DeviceBusy, match=words):
            allocations.allocate("u2", "ns/b", [second], memory)


CLAIMS = st.one_of(
    st.builds(DeviceHold, st.sampled_from("01")),
    st.builds(DeviceHold, st.sampled_from("01"), st.integers(0, 700), st.integers(0, 700)),
    st.builds(
        DeviceHold,
        st.sampled_from("01"),
        st.just(0),
        st.just(0),
        st.just("s"),
        st.integers(0, 7),
        st.integers(1, 4),
    ),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.lists(CLAIMS, max_size=3)), max_size=25))
def test_never_more_than_there_is(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, list[DeviceHold]]]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "d.json"
    for uid, take, claims in steps:
        allocations = DeviceAllocations(path)  # a new agent at every step
        before = allocations.held
        if not take:
            allocations.release(uid)
            assert not allocations.holds_of(uid)
            continue
        try:
            allocations.allocate(uid, uid, claims, {"0": 1000, "1": 1000})
        except DeviceBusy:
            assert allocations.held == before
        for device in "01":
            held = [each.hold for each in allocations.holders(device)]
            slices = [c for c in held if c.profile]
            shares = [c for c in held if not c.profile]
            assert sum(c.whole for c in held) in ((0, 1) if len(held) <= 1 else (0,))
            assert not (slices and shares)
            assert sum(c.milli for c in shares) <= 1000
            assert sum(c.memory_mib for c in shares) <= 1000
            taken = [place for c in slices for place in range(c.start, c.start + c.size)]
            assert len(taken) == len(set(taken))


def test_pods_of_one_claim_use_a_card_together(tmp_path: Path) -> None:
    allocations = DeviceAllocations(tmp_path / "ledger")
    ours = DeviceHold("0", together="default/ours")
    allocations.allocate("u1", "default/a", [ours])
    allocations.allocate("u2", "default/b", [ours])
    for other in (DeviceHold("0"), DeviceHold("0", together="default/theirs"), DeviceHold("0", milli=10)):
        with pytest.raises(DeviceBusy):
            allocations.allocate("u3", "default/c", [other])
    allocations.release("u1")
    assert DeviceAllocations(tmp_path / "ledger").holds_of("u2") == (ours,)
