"""Room that is being vacated: promised exactly if it will do, and kept."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_dsl import Cluster, needs
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from windlass.spi.objects import Expression, HostPort, Needs, PodTerm, SpreadTerm, TaskState

APP = (Expression("app", "In", ("x",)),)
APART = needs(
    "gpu=1",
    anti_affinity=(PodTerm(APP, "kubernetes.io/hostname"),),
    labels={"app": "x"},
)
CLASSES: tuple[Needs, ...] = (
    needs("gpu=1"),
    needs("gpu=2 cpu=4"),
    needs("cpu=3"),
    needs("gpu=1", node_selector={"zone": "a"}),
    APART,
    needs("gpu=1", spread=(SpreadTerm("zone", 1, True, APP),), labels={"app": "x"}),
    needs("gpu=1", host_ports=(HostPort("TCP", 80),)),
)
SETTINGS = settings(max_examples=examples(80), deadline=None)


@dataclass(frozen=True)
class Resident:
    """A pod that runs on a node; some of them are about to leave."""

    node: int
    cls: int
    leaves: bool


@dataclass(frozen=True)
class Scene:
    gpus: tuple[int, ...]
    residents: tuple[Resident, ...]
    cls: int
    members: int
    minimum: int
    limit: int | None

    def build(self, *, gone: bool) -> Cluster:
        """Build the cluster; ``gone``: terminating pods have ended already."""
        c = Cluster().queues("default" + (f" limit.gpu={self.limit}" if self.limit else ""))
        c.overcommitted = True  # residents may not fit
        for at, gpus in enumerate(self.gpus):
            c.nodes(f"n{at} gpu={gpus} cpu=8 zone={'ab'[at % 2]}")
        for at, resident in enumerate(self.residents):
            if gone and resident.leaves:
                continue
            c.gang(f"r{at}", 1, CLASSES[resident.cls])
            state = TaskState.RELEASING if resident.leaves else TaskState.RUNNING
            c.change_task(f"r{at}-0", node=f"n{resident.node % len(self.gpus)}", state=state)
        c.gang("g", self.members, CLASSES[self.cls], min=min(self.minimum, self.members))
        return c


SCENES = st.builds(
    Scene,
    st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple),
    st.lists(
        st.builds(Resident, st.integers(0, 3), st.integers(0, len(CLASSES) - 1), st.booleans()), max_size=6
    ).map(tuple),
    st.integers(0, len(CLASSES) - 1),
    st.integers(1, 5),
    st.integers(1, 5),
    st.none() | st.integers(1, 8),
)


@SETTINGS
@given(SCENES)
def test_a_gang_is_bound_or_promised_room_exactly_if_it_would_start_with_those_gone_who_leave(
    scene: Scene,
) -> None:
    later = scene.build(gone=True)
    later.cycle()
    now = scene.build(gone=False)
    decision = now.cycle()
    mine = [nomination for nomination in decision.nominations if nomination.task.startswith("ns/g-")]
    assert bool(now.placed("g") or mine) == bool(later.placed("g"))
    if mine and not now.placed("g"):
        assert len(mine) == min(scene.minimum, scene.members)


@SETTINGS
@given(SCENES, st.integers(0, len(CLASSES) - 1), st.integers(1, 4), st.integers(0, 1))
def test_what_is_promised_is_kept_whoever_comes_meanwhile(
    scene: Scene, cls: int, n: int, priority: int
) -> None:
    c = scene.build(gone=False)
    promised = [x.task for x in c.cycle().nominations if x.task.startswith("ns/g-")]
    c.gang("late", n, CLASSES[cls], min=1, priority=priority)
    c.cycle()
    for at, resident in enumerate(scene.residents):
        if resident.leaves:
            c.remove(f"r{at}")
    c.cycle()
    state = c.engine.state
    assert all(state.tasks[key].row >= 0 for key in promised)


@SETTINGS
@given(SCENES)
def test_nobody_is_promised_the_room_of_those_who_are_stuck(scene: Scene) -> None:
    c = scene.build(gone=False)
    c.cycle()
    for at, resident in enumerate(scene.residents):
        if resident.leaves:
            c.task(altered(c.tasks[f"ns/r{at}-0"], state=TaskState.STUCK))
    c.cycle()
    assert c.engine.state.groups["ns/g"].nominations == 0
