"""Explanations of gangs with a required domain are true.

With the suggested change the gang starts in the next cycle; with one unit less it does
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster_dsl import Cluster, node
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.quantities import is_device, to_units
from windlass.api.reasons import SuggestedChange, SuggestedChangeKind
from windlass.spi.objects import Group, Needs, Task, Toleration
from windlass.spi.topology import Level, TopologyNeed

LEVELS = (Level("zone"), Level("rack"))
NAMES = [level.label for level in LEVELS]
SETTINGS = settings(max_examples=examples(50), deadline=None)


@dataclass(frozen=True)
class Scene:
    """Nodes as (zone, rack, GPUs, trouble), and a gang; ``required`` and ``preferred``: numbers of levels."""

    nodes: tuple[tuple[int, int, int, str], ...]
    members: int
    needs: Needs
    required: int
    preferred: int

    def spec(self, at: int) -> str:
        zone, rack, gpus, trouble = self.nodes[at]
        return f"gpu={gpus} zone=z{zone} rack=r{rack} {trouble}"

    def build(
        self,
        *,
        members: int = 0,
        needs: Needs | None = None,
        more: Sequence[str] = (),
        uncordon: Sequence[str] = (),
        required: int | None = None,
    ) -> Cluster:
        cluster = Cluster().queues("default")
        for at in range(len(self.nodes)):
            cluster.nodes(f"n{at} {self.spec(at)}")
        cluster.nodes(*more)
        for name in uncordon:
            cluster.nodes(replace(cluster.node_specs[name], unschedulable=False))
        level = self.required if required is None else required
        need = TopologyNeed("network", LEVELS, level, max(self.preferred, level))
        cluster.group(Group("ns/g", min_member=members or self.members, created=1.0, uid="g", topology=need))
        for at in range(self.members):
            cluster.task(Task(f"ns/g-{at}", f"g-{at}", "ns/g", needs or self.needs, index=at))
        return cluster

    def starts(self, **changes: object) -> bool:
        cluster = self.build(**changes)  # type: ignore[arg-type]
        cluster.cycle()
        group = cluster.engine.state.groups["ns/g"]
        return group.active >= group.minimum

    def applied(self, change: SuggestedChange, more: int) -> bool:
        """Return whether the gang starts with the change; ``more``: with one unit less of it."""
        match change.kind:
            case SuggestedChangeKind.MIN_MEMBER:
                return self.starts(members=int(change.wanted) + more)
            case SuggestedChangeKind.REQUEST:
                name = change.field.removeprefix("resources.requests[").removesuffix("]")
                units = to_units(name, change.wanted) + more * (1000 if is_device(name) else 1)
                request = {**dict(self.needs.request), name: units}
                return self.starts(needs=replace(self.needs, request=tuple(sorted(request.items()))))
            case SuggestedChangeKind.ADD_NODES:
                like = self.spec(int(change.target.removeprefix("n")))
                n = int(change.wanted) - int(change.current) - more
                return self.starts(more=[node(f"new{at} {like}") for at in range(n)])
            case SuggestedChangeKind.UNCORDON:
                names = change.target.split(",")
                return self.starts(uncordon=names[: len(names) - more])
            case SuggestedChangeKind.TOLERATE:
                tolerant = replace(self.needs, tolerations=(Toleration("a", "Exists"),))
                return self.starts(needs=self.needs if more else tolerant)
            case SuggestedChangeKind.TOPOLOGY:
                level = NAMES.index(change.wanted) if change.wanted else -1
                return self.starts(required=level + more)
        raise AssertionError(f"nothing is known of {change}")


SCENES = st.builds(
    Scene,
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.integers(0, 2),
            st.integers(0, 5),
            st.sampled_from(["", "", "", "cordoned", "taint=a=b:NoSchedule"]),
        ),
        min_size=1,
        max_size=7,
    ).map(tuple),
    st.integers(1, 7),
    st.builds(
        lambda gpus, cpus: Needs(request=(("cpu", cpus), ("nvidia.com/gpu", gpus * 1000)), namespace="ns"),
        st.integers(1, 3),
        st.sampled_from([100, 9_000, 30_000]),
    ),
    st.integers(0, 1),
    st.integers(0, 1),
)


@SETTINGS
@given(SCENES)
def test_each_change_admits_the_gang_and_one_unit_less_does_not(scene: Scene) -> None:
    cluster = scene.build()
    cluster.cycle()
    explanation = cluster.engine.explain("ns/g", cluster.now)
    assert (explanation is None) is scene.starts()
    for change in explanation.changes if explanation is not None else ():
        assert scene.applied(change, 0), change
        assert not scene.applied(change, 1), change


@SETTINGS
@given(SCENES)
def test_remedies_about_domains_are_true(scene: Scene) -> None:
    cluster = scene.build()
    cluster.cycle()
    explanation = cluster.engine.explain("ns/g", cluster.now)
    for remedy in explanation.remedies if explanation is not None else ():
        if remedy.startswith("Require zone instead of rack"):
            assert scene.starts(required=0)
        if remedy.startswith("With minAvailable (minMember)"):
            assert scene.starts(members=int(remedy.split()[3]))


def test_all_kinds_of_changes_are_proposed() -> None:
    one = Needs(request=(("nvidia.com/gpu", 2000),), namespace="ns")
    nodes = ((0, 0, 4, ""), (0, 0, 4, "cordoned"), (0, 1, 4, ""), (0, 1, 4, "taint=a=b:NoSchedule"))
    cluster = Scene(nodes, 4, one, 1, 1).build()
    cluster.cycle()
    explanation = cluster.engine.explain("ns/g", cluster.now)
    assert explanation is not None
    assert {change.kind for change in explanation.changes} == {
        SuggestedChangeKind.MIN_MEMBER,
        SuggestedChangeKind.REQUEST,
        SuggestedChangeKind.ADD_NODES,
        SuggestedChangeKind.UNCORDON,
        SuggestedChangeKind.TOLERATE,
        SuggestedChangeKind.TOPOLOGY,
    }
