"""Carving MIG slices over a scripted NVML: exactly the decided place, once, and only what is ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_nvml import A100_40, Script, binding, card

from windlass.api.devices.node_annotation import DeviceRecord
from windlass.node.devices.discovery import DiscoveryOptions, discover, inventory
from windlass.node.devices.mig_instances import (
    MigInstanceFile,
    NvmlSlicer,
    SimulatedSlicer,
    SliceBusy,
    SliceRefused,
)
from windlass.node.devices.nvml import Nvml


class Machine:
    """GPU in MIG mode, and agents that use it one after the other."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.script = Script.write(folder / "nvml.json", [card(A100_40, 0, migMode=True)], **more)
        self.path = folder / "mig.json"
        self.agent()

    def agent(self) -> NvmlSlicer:
        self.nvml = Nvml(binding(self.script))
        self.nvml.open()
        self.slicer = NvmlSlicer(self.nvml, MigInstanceFile(self.path))
        return self.slicer

    @property
    def card(self) -> DeviceRecord:
        own = frozenset(self.slicer.records.instances)
        return inventory(self.nvml, DiscoveryOptions(may_create=True, own=own)).devices[0]

    @property
    def present(self) -> list[tuple[str, int]]:
        return sorted((i["profile"], i["start"]) for i in self.script.cards[0]["instances"])

    def carve(self, profile: str, start: int, owner: str) -> str:
        return self.slicer.create(self.card, profile, start, owner)


def test_the_decided_place_exactly_and_once(tmp_path: Path) -> None:
    box = Machine(tmp_path)
    first = box.carve("1g.5gb", 6, "u1")
    assert first.startswith("MIG-")
    assert box.carve("1g.5gb", 6, "u1") == first
    box.carve("3g.20gb", 0, "u2")
    assert box.present == [("1g.5gb", 6), ("3g.20gb", 0)]
    wide = next(i for i in box.script.cards[0]["instances"] if i["profile"] == "3g.20gb")
    assert wide["computeProfile"] == 2  # all three compute slices
    assert box.card.dynamic  # instances of the agent do not count as foreign


def test_a_gone_pods_slice_goes_and_the_others_stay(tmp_path: Path) -> None:
    box = Machine(tmp_path)
    box.carve("1g.5gb", 6, "u1")
    kept = box.carve("2g.10gb", 4, "u2")
    assert box.slicer.remove({"u2"}) == []
    assert box.present == [("2g.10gb", 4)]
    assert box.carve("2g.10gb", 4, "u2") == kept


def test_an_agent_that_was_killed_finds_its_slices_again(tmp_path: Path) -> None:
    box = Machine(tmp_path)
    first = box.carve("1g.5gb", 6, "u1")
    box.agent()
    assert box.carve("1g.5gb", 6, "u1") == first
    assert box.slicer.remove(set()) == []
    assert box.present == []


@pytest.mark.parametrize("after", ["records", "instance"])
def test_a_crash_in_the_middle_is_made_good(tmp_path: Path, after: str) -> None:
    box = Machine(tmp_path)
    refused = {
        "records": "nvmlDeviceCreateGpuInstanceWithPlacement",
        "instance": "nvmlGpuInstanceCreateComputeInstance",
    }

    class Killed(BaseException):
        pass

    def dies(*_: Any) -> None:
        raise Killed

    setattr(box.nvml.library, refused[after], dies)
    with pytest.raises(Killed):
        box.carve("1g.5gb", 3, "u1")
    box.agent()
    assert box.card.dynamic  # an incomplete instance belongs to the agent
    assert box.carve("1g.5gb", 3, "u1").startswith("MIG-")
    assert box.present == [("1g.5gb", 3)]


def test_a_reboot_takes_all_instances_and_they_are_made_again(tmp_path: Path) -> None:
    box = Machine(tmp_path)
    before = box.carve("1g.5gb", 6, "u1")
    box.script.reboot()
    box.agent()
    assert box.present == []
    after = box.carve("1g.5gb", 6, "u1")
    assert after != before
    assert box.present == [("1g.5gb", 6)]
    box.script.reboot()
    assert box.agent().remove(set()) == []
    assert not box.slicer.records.instances


def test_foreign_instances_are_left_alone(tmp_path: Path) -> None:
    box = Machine(tmp_path)
    (tmp_path / "other").mkdir()
    foreign = Machine(tmp_path / "other")
    foreign.script = box.script
    foreign.agent()
    foreign.carve("1g.5gb", 0, "theirs")
    assert not box.card.dynamic
    with pytest.raises(SliceRefused, match="did not create") as caught:
        box.carve("4g.20gb", 0, "u1")
    assert caught.value.lasting
    assert box.slicer.remove(set()) == []
    assert box.present == [("1g.5gb", 0)]


def test_a_slice_in_use_stays_until_it_is_free(tmp_path: Path) -> None:
    box = Machine(tmp_path)
    box.carve("1g.5gb", 6, "u1")
    number = box.script.cards[0]["instances"][0]["id"]
    box.script.run(0, 4711, 100, number)
    left = box.slicer.remove(set())
    assert [made.owner for made in left] == ["u1"]
    assert box.present == [("1g.5gb", 6)]
    with pytest.raises(SliceBusy, match="of a pod that is ending"):
        box.carve("1g.5gb", 6, "u2")
    box.script.change(0, processes=[])
    assert box.slicer.remove(set()) == []
    assert box.present == []
    box.carve("1g.5gb", 6, "u2")


@pytest.mark.parametrize(
    ("profile", "start", "words"),
    [("2g.10gb", 1, "cannot start at 1"), ("9g.99gb", 0, "no MIG profile"), ("4g.20gb", 4, "cannot start")],
)
def test_invalid_placements_are_refused(tmp_path: Path, profile: str, start: int, words: str) -> None:
    box = Machine(tmp_path)
    with pytest.raises(SliceRefused, match=words) as caught:
        box.carve(profile, start, "u1")
    assert not caught.value.lasting
    assert box.present == []


def test_error_without_root_names_the_requirement(tmp_path: Path) -> None:
    box = Machine(tmp_path)
    known = box.card
    with box.script.open() as state:
        state["root"] = False
    with pytest.raises(SliceRefused, match="requires root") as caught:
        box.slicer.create(known, "1g.5gb", 6, "u1")
    assert caught.value.lasting


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("carve"),
            st.sampled_from(
                [("1g.5gb", 6), ("1g.5gb", 0), ("2g.10gb", 4), ("3g.20gb", 0), ("3g.20gb", 4), ("7g.40gb", 0)]
            ),
            st.sampled_from("abc"),
        ),
        st.tuples(st.just("gone"), st.none(), st.sampled_from("abc")),
        st.tuples(st.just("kill"), st.none(), st.none()),
        st.tuples(st.just("reboot"), st.none(), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=examples(25), deadline=None)
@given(STEPS)
def test_whatever_happens_the_card_holds_what_living_pods_hold(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any, Any]]
) -> None:
    box = Machine(tmp_path_factory.mktemp("mig"))
    held: dict[tuple[str, int], str] = {}
    living: set[str] = set("abc")
    for what, place, owner in steps:
        if what == "kill":
            box.agent()
        elif what == "reboot":
            box.script.reboot()
            held.clear()
        elif what == "gone":
            living.discard(owner)
            held = {key: who for key, who in held.items() if who != owner}
            assert box.slicer.remove(living) == []
            living.add(owner)
        else:
            try:
                profile, start = place
                box.carve(profile, start, owner)
            except SliceBusy:
                assert place not in held or held[place] != owner
            else:
                held[place] = owner
        assert box.present == sorted(held)


def test_simulated_slices_are_kept_like_real_ones(tmp_path: Path) -> None:
    carved = discover("simulated:1xA100-40GB+mig").devices[0]
    slicer = SimulatedSlicer(MigInstanceFile(tmp_path / "mig.json"))
    first = slicer.create(carved, "1g.5gb", 6, "u1")
    assert SimulatedSlicer(MigInstanceFile(tmp_path / "mig.json")).create(carved, "1g.5gb", 6, "u1") == first
    with pytest.raises(SliceBusy):
        slicer.create(carved, "1g.10gb", 6, "u2")
    slicer.remove({"u2"})
    slicer.create(carved, "1g.10gb", 6, "u2")
