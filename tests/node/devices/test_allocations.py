"""The device ledger: nothing twice, whatever happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.node.devices.allocations import Claim, DeviceBusy, DeviceLedger


def whole(*names: str) -> list[Claim]:
    return [Claim(name) for name in names]


def test_a_device_is_given_once(tmp_path: Path) -> None:
    ledger = DeviceLedger(tmp_path / "d.json")
    ledger.claim("u1", "ns/a", whole("0", "1"))
    ledger.claim("u1", "ns/a", whole("0", "1"))
    assert len(ledger.held) == 2
    with pytest.raises(DeviceBusy, match="device 1 is held by pod ns/a"):
        ledger.claim("u2", "ns/b", whole("2", "1"))
    assert not ledger.of("u2")  # all or nothing
    assert ledger.release("u1") == whole("0", "1")
    ledger.claim("u2", "ns/b", whole("2", "1"))


def test_it_outlives_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    claims = [Claim("0", 500, 1024), Claim("1", 0, 0, "1g.10gb", 6, 1)]
    DeviceLedger(path).claim("u1", "ns/a", claims)
    again = DeviceLedger(path)
    assert list(again.of("u1")) == claims
    with pytest.raises(DeviceBusy):
        again.claim("u2", "ns/b", whole("0"))
    assert again.keep_only({"u2"}) == claims
    assert json.loads(path.read_text()) == {"claims": []}


@pytest.mark.parametrize("left", ["", "{", "null", "[3]", '{"claims": [{"uid": "u"}]}', '{"0": 1}'])
def test_of_a_file_that_cannot_be_read_nothing_is_known(tmp_path: Path, left: str) -> None:
    path = tmp_path / "d.json"
    path.write_text(left)
    ledger = DeviceLedger(path)
    assert ledger.held == ()
    assert ledger.lost.startswith(f"{path} cannot be read (")
    ledger.claim("u1", "ns/a", whole("0"))
    again = DeviceLedger(path)
    assert (again.lost, again.of("u1")) == ("", (Claim("0"),))


def test_the_file_of_earlier_releases_is_read(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"0": {"uid": "u1", "pod": "ns/a"}}))
    ledger = DeviceLedger(path)
    assert ledger.of("u1") == (Claim("0"),)
    with pytest.raises(DeviceBusy):
        ledger.claim("u2", "ns/b", [Claim("0", 100, 1)])


def test_two_containers_may_have_equal_shares_of_one_card(tmp_path: Path) -> None:
    ledger = DeviceLedger(tmp_path / "d.json")
    twice = [Claim("0", 400, 1000), Claim("0", 400, 1000)]
    ledger.claim("u1", "ns/a", twice)
    ledger.claim("u1", "ns/a", twice)
    assert list(ledger.of("u1")) == twice
    with pytest.raises(DeviceBusy, match="110 %"):
        ledger.claim("u2", "ns/b", [Claim("0", 300, 1000)])


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (Claim("0", 0, 10240), Claim("0", 0, 10240), None),
        (Claim("0", 0, 10240), Claim("0", 0, 14337), "24577 of 24576 MiB"),
        (Claim("0", 600), Claim("0", 401), "100.1 %"),
        (Claim("0", 600), Claim("0"), "held by pod ns/a"),
        (Claim("0", 600), Claim("0", 0, 0, "1g.5gb", 0, 1), "shared or cut"),
        (Claim("0", 0, 0, "2g.10gb", 4, 2), Claim("0", 0, 0, "1g.5gb", 5, 1), "2g.10gb at 4 is in the way"),
        (Claim("0", 0, 0, "2g.10gb", 4, 2), Claim("0", 0, 0, "1g.5gb", 6, 1), None),
        (Claim("0", 0, 0, "1g.5gb", -2, 0), Claim("0", 0, 0, "1g.5gb", -3, 0), None),
    ],
)
def test_what_stands_beside_what(tmp_path: Path, first: Claim, second: Claim, words: str | None) -> None:
    ledger = DeviceLedger(tmp_path / "d.json")
    memory = {"0": 24576}
    ledger.claim("u1", "ns/a", [first], memory)
    if words is None:
        ledger.claim("u2", "ns/b", [second], memory)
    else:
        with pytest.raises(DeviceBusy, match=words):
            ledger.claim("u2", "ns/b", [second], memory)


CLAIMS = st.one_of(
    st.builds(Claim, st.sampled_from("01")),
    st.builds(Claim, st.sampled_from("01"), st.integers(0, 700), st.integers(0, 700)),
    st.builds(
        Claim,
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
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, list[Claim]]]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "d.json"
    for uid, take, claims in steps:
        ledger = DeviceLedger(path)  # a new agent at every step
        before = ledger.held
        if not take:
            ledger.release(uid)
            assert not ledger.of(uid)
            continue
        try:
            ledger.claim(uid, uid, claims, {"0": 1000, "1": 1000})
        except DeviceBusy:
            assert ledger.held == before
        for device in "01":
            held = [each.claim for each in ledger.holders(device)]
            slices = [c for c in held if c.profile]
            shares = [c for c in held if not c.profile]
            assert sum(c.whole for c in held) in ((0, 1) if len(held) <= 1 else (0,))
            assert not (slices and shares)
            assert sum(c.milli for c in shares) <= 1000
            assert sum(c.memory_mib for c in shares) <= 1000
            taken = [place for c in slices for place in range(c.start, c.start + c.size)]
            assert len(taken) == len(set(taken))


def test_pods_of_one_claim_use_a_card_together(tmp_path: Path) -> None:
    ledger = DeviceLedger(tmp_path / "ledger")
    ours = Claim("0", together="default/ours")
    ledger.claim("u1", "default/a", [ours])
    ledger.claim("u2", "default/b", [ours])
    for other in (Claim("0"), Claim("0", together="default/theirs"), Claim("0", milli=10)):
        with pytest.raises(DeviceBusy):
            ledger.claim("u3", "default/c", [other])
    ledger.release("u1")
    assert DeviceLedger(tmp_path / "ledger").of("u2") == (ours,)
