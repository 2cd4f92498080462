"""The smallest change that an explanation states is true: with it the group starts in the next cycle, with
one unit less it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from cluster_dsl import Cluster, node
from example_counts import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from windlass.api.quantities import is_device, to_units
from windlass.api.reasons import SuggestedChange, SuggestedChangeKind
from windlass.engine.deltas import QueueUpserted
from windlass.spi.objects import Expression, Needs, NodeTerm, Queue, Toleration

SETTINGS = settings(max_examples=examples(120), deadline=None)
ANYWHERE = (NodeTerm(labels=(Expression("zone", "NotIn", ("nowhere",)),)),)


@dataclass(frozen=True)
class Scene:
    """Nodes as (GPUs, CPUs, trouble), pods that already run, one gang that comes last."""

    nodes: tuple[tuple[int, int, str], ...]
    busy: int
    members: int
    needs: Needs
    limit: int | None
    role: str = ""
    """With a role the gang has its minimum for the role, as a Volcano Job's has."""

    def build(self, *, members: int = 0, needs: Needs | None = None, **others: object) -> Cluster:
        cluster = Cluster()
        limit = others.get("limit", self.limit and self.limit * 1000)
        capability = {} if limit is None else {"nvidia.com/gpu": limit}
        cluster.engine.apply([QueueUpserted(Queue("default", capability=capability))])
        for i, (gpus, cpus, trouble) in enumerate(self.nodes):
            cluster.nodes(f"n{i} gpu={gpus} cpu={cpus} {trouble}")
        cluster.gang("busy", self.busy, "gpu=1 cpu=1", min=0)
        while cluster.cycle().binds:
            pass
        for spec in others.get("more", ()):
            cluster.nodes(spec)
        for name in others.get("uncordon", ()):
            cluster.nodes(replace(cluster.node_specs[name], unschedulable=False))
        roles = {self.role: self.members} if self.role else None
        least = members or self.members
        cluster.gang("g", self.members, needs or self.needs, min=least, roles=roles, role=self.role)
        return cluster

    def starts(self, **changes: object) -> bool:
        cluster = self.build(**changes)
        cluster.cycle()
        group = cluster.engine.state.groups["ns/g"]
        return group.active >= group.minimum


troubles = st.sampled_from(["", "", "", "cordoned", "taint=a=b:NoSchedule", "zone=z", "zone=y"])
scenes = st.builds(
    Scene,
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 12), troubles), min_size=1, max_size=6).map(tuple),
    st.integers(0, 12),
    st.integers(1, 7),
    st.builds(
        lambda gpus, cpus, zone: Needs(
            request=(("cpu", cpus), ("nvidia.com/gpu", gpus * 1000)),
            namespace="ns",
            node_selector=(("zone", zone),) if zone else (),
        ),
        st.integers(1, 4),
        st.integers(1, 6000),
        st.sampled_from(["", "", "z"]),
    ),
    st.none() | st.integers(1, 16),
    st.sampled_from(["", "worker"]),
)


def with_request(scene: Scene, change: SuggestedChange, more: int) -> Needs:
    name = change.field.removeprefix("resources.requests[").removesuffix("]")
    unit = 1000 if is_device(name) else 1
    units = to_units(name, change.wanted) + more * unit
    return replace(scene.needs, request=tuple(sorted({**dict(scene.needs.request), name: units}.items())))


def fewer(scene: Scene, change: SuggestedChange, more: int) -> bool:
    return scene.starts(members=int(change.wanted) + more)


def smaller(scene: Scene, change: SuggestedChange, more: int) -> bool:
    return scene.starts(needs=with_request(scene, change, more))


def higher(scene: Scene, change: SuggestedChange, more: int) -> bool:
    return scene.starts(limit=to_units("nvidia.com/gpu", change.wanted) - more)


def added(scene: Scene, change: SuggestedChange, more: int) -> bool:
    model = scene.nodes[int(change.target.removeprefix("n"))]
    n = int(change.wanted) - int(change.current) - more
    gpus, cpus, trouble = model
    return scene.starts(more=[node(f"new{i} gpu={gpus} cpu={cpus} {trouble}") for i in range(n)])


def uncordoned(scene: Scene, change: SuggestedChange, more: int) -> bool:
    names = change.target.split(",")
    return scene.starts(uncordon=names[: len(names) - more])


def tolerated(scene: Scene, change: SuggestedChange, more: int) -> bool:
    return scene.starts(
        needs=scene.needs if more else replace(scene.needs, tolerations=(Toleration("a", "Exists"),))
    )


def unselected(scene: Scene, change: SuggestedChange, more: int) -> bool:
    return scene.starts(needs=scene.needs if more else replace(scene.needs, node_selector=()))


APPLY: dict[SuggestedChangeKind, Callable[[Scene, SuggestedChange, int], bool]] = {
    SuggestedChangeKind.MIN_MEMBER: fewer,
    SuggestedChangeKind.REQUEST: smaller,
    SuggestedChangeKind.QUEUE_LIMIT: higher,
    SuggestedChangeKind.ADD_NODES: added,
    SuggestedChangeKind.UNCORDON: uncordoned,
    SuggestedChangeKind.TOLERATE: tolerated,
    SuggestedChangeKind.SELECTOR: unselected,
}


def changes_of(scene: Scene) -> tuple[SuggestedChange, ...]:
    cluster = scene.build()
    cluster.cycle()
    explanation = cluster.engine.explain("ns/g", cluster.now)
    return explanation.changes if explanation is not None else ()


def alone(scene: Scene) -> bool:
    """Return whether no other waiting group would take what the change provides."""
    return not scene.build().engine.state.groups["ns/busy"].pending


def hold(scene: Scene) -> set[SuggestedChangeKind]:
    changes = changes_of(scene)
    for change in changes:
        assert APPLY[change.kind](scene, change, 0), change
        assert not APPLY[change.kind](scene, change, 1), change
    assert list(changes) == sorted(changes, key=lambda c: (c.size, c.kind, c.target))
    return {change.kind for change in changes}


@SETTINGS
@given(scenes)
def test_each_change_admits_the_group_and_one_unit_less_does_not(scene: Scene) -> None:
    assume(alone(scene))
    hold(scene)


@pytest.mark.parametrize(
    ("scene", "kinds"),
    [
        (
            Scene(((4, 8, ""), (4, 8, "")), 2, 4, Needs((("nvidia.com/gpu", 2000),), namespace="ns"), None),
            {SuggestedChangeKind.MIN_MEMBER, SuggestedChangeKind.REQUEST, SuggestedChangeKind.ADD_NODES},
        ),
        (
            Scene(((8, 8, ""),), 2, 2, Needs((("nvidia.com/gpu", 2000),), namespace="ns"), 5),
            {SuggestedChangeKind.MIN_MEMBER, SuggestedChangeKind.REQUEST, SuggestedChangeKind.QUEUE_LIMIT},
        ),
        (
            Scene(
                ((4, 8, ""), (4, 8, "cordoned"), (4, 8, "taint=a=b:NoSchedule")),
                4,
                2,
                Needs((("nvidia.com/gpu", 2000),), namespace="ns"),
                None,
            ),
            {SuggestedChangeKind.UNCORDON, SuggestedChangeKind.TOLERATE, SuggestedChangeKind.ADD_NODES},
        ),
        (
            Scene(
                ((1, 8, "zone=z"), (4, 8, "zone=y")),
                0,
                1,
                Needs((("nvidia.com/gpu", 2000),), node_selector=(("zone", "z"),), namespace="ns"),
                None,
            ),
            {SuggestedChangeKind.REQUEST, SuggestedChangeKind.SELECTOR},
        ),
    ],
)
def test_the_changes_that_there_are_to_be(scene: Scene, kinds: set[SuggestedChangeKind]) -> None:
    assert hold(scene) == kinds
