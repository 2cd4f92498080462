"""Levels of topologies (HyperNodes, Topologies, node labels), and the needs of groups.

HyperNodes become labels that nodes carry inside the engine: one per tier with the
node's HyperNode of that tier, and one with all of them. A node is in at most one
HyperNode of a tier. If two contain it, the first by name applies and
:attr:`TopologyIndex.problems` reports it.

The cluster itself is above all HyperNodes, in a tier one higher than the highest. Nodes
in no HyperNode are directly below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from windlass.api import annotations as names
from windlass.api import patterns, views
from windlass.api.errors import FieldError
from windlass.api.selectors import from_label_selector
from windlass.api.views.podshape import LabelSelector
from windlass.api.views.topology import HYPERNODE as KIND_HYPERNODE
from windlass.spi.topology import HYPERNODE, HYPERNODE_PATH, Level, TopologyNeed

HYPERNODES = "HyperNodes"
"""Name of the topology that HyperNodes form."""
_CONSTRAINT = ("topology", "requiredTopologyLevel", "preferredTopologyLevel")
_ANNOTATIONS_KAI = (names.TOPOLOGY_KAI, names.TOPOLOGY_REQUIRED_KAI, names.TOPOLOGY_PREFERRED_KAI)
"""The same three fields, as annotations of pods."""


@dataclass(slots=True)
class _Tree:
    """HyperNodes and the current nodes in them."""

    tiers: tuple[int, ...] = ()
    """Tiers in ascending order: the lowest has the shortest distances."""
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """Node → the labels that it carries inside the engine."""
    nodes: dict[str, frozenset[str]] = field(default_factory=dict)
    """HyperNode → its nodes, direct or through other HyperNodes."""
    parents: dict[str, str] = field(default_factory=dict)
    problems: tuple[tuple[str, str], ...] = ()
    """HyperNode → its problem."""


class TopologyIndex:
    """All objects that define distances between nodes."""

    def __init__(self) -> None:
        self.hypernodes: dict[str, views.HyperNode] = {}
        self.topologies: dict[str, views.Topology] = {}
        self._tree = _Tree()
        self.stale = False
        self.version = 0
        """Version. It changes whenever the HyperNodes, or their nodes, may have changed."""

    # ------------------------------------------------------------------ objects

    def upsert(self, item: views.HyperNode | views.Topology) -> bool:
        """Store an object. Return whether anything changed for groups or nodes."""
        if isinstance(item, views.Topology):
            old = self.topologies.get(item.name)
            self.topologies[item.name] = item
            return old is None or old.levels != item.levels
        known = self.hypernodes.get(item.name)
        self.hypernodes[item.name] = item
        same = known is not None and (known.tier, known.tier_name, known.members) == (
            item.tier,
            item.tier_name,
            item.members,
        )
        self.stale = self.stale or not same
        return not same

    def remove(self, item: views.HyperNode | views.Topology) -> bool:
        if isinstance(item, views.Topology):
            return self.topologies.pop(item.name, None) is not None
        removed = self.hypernodes.pop(item.name, None) is not None
        self.stale = self.stale or removed
        return removed

    def nodes_changed(self) -> None:
        """React to nodes that were added, deleted or relabelled."""
        self.stale = self.stale or bool(self.hypernodes)

    def settle(self, nodes: Mapping[str, views.NodeObject]) -> tuple[set[str], bool]:
        """Assign the nodes to the HyperNodes again, if anything changed.

        Return the nodes with other HyperNodes than before, and whether the tiers
        changed.
        """
        if not self.stale:
            return set(), False
        self.stale = False
        self.version += 1
        old, self._tree = self._tree, _build(self.hypernodes, nodes)
        tree = self._tree
        moved = {
            name for name in {*old.labels, *tree.labels} if old.labels.get(name) != tree.labels.get(name)
        }
        return moved, old.tiers != tree.tiers

    # ------------------------------------------------------------------ queries

    @property
    def tiers(self) -> tuple[int, ...]:
        """Tiers in ascending order: the lowest has the shortest distances."""
        return self._tree.tiers

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of HyperNodes and Topologies, as texts."""
        fields = sorted(
            f"Topology {item.name}: {problem.field}: {problem.message}"
            for item in self.topologies.values()
            for problem in item.problems
        )
        return (*fields, *(text for _, text in self.hypernode_problems))

    @property
    def hypernode_problems(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a HyperNode and its problem, as text."""
        fields = sorted(
            (item.name, f"HyperNode {item.name}: {problem.field}: {problem.message}")
            for item in self.hypernodes.values()
            for problem in item.problems
        )
        return (*fields, *self._tree.problems)

    def labels_of(self, node: str) -> Mapping[str, str]:
        """Return the labels that a node carries inside the engine for its HyperNodes."""
        return self._tree.labels.get(node, {})

    def nodes_of(self, hypernode: str) -> frozenset[str]:
        """Return the nodes of a HyperNode, direct or through other HyperNodes."""
        return self._tree.nodes.get(hypernode, frozenset())

    def parent_of(self, hypernode: str) -> str:
        """Return the HyperNode that has it as a member; ``""`` for none."""
        return self._tree.parents.get(hypernode, "")

    def tightest(self, nodes: Iterable[str]) -> str:
        """Return the lowest HyperNode that contains all of these nodes; ``""`` without one."""
        paths = [self.labels_of(node) for node in nodes]
        for tier in self.tiers if paths else ():
            hypernodes = {path.get(f"{HYPERNODE}tier-{tier}", "") for path in paths}
            if len(hypernodes) == 1 and "" not in hypernodes:
                return hypernodes.pop()
        return ""

    # ------------------------------------------------------------------ needs of groups

    def network(
        self, wanted: views.NetworkTopology | None, field_: str, anchor: str = ""
    ) -> tuple[TopologyNeed | None, tuple[FieldError, ...]]:
        """Return the need of Volcano's ``networkTopology``.

        A tier that does not exist is a problem. The group is then not placed.
        """
        if wanted is None:
            return None, ()
        levels = _levels(self.tiers, self._tier_names())
        finest = len(levels) - 1
        coarsest, problem = self._highest(wanted, field_) if wanted.mode == "hard" else (-1, None)
        if problem is not None:
            return None, (problem,)
        if coarsest < 0:
            return _network_need(levels, -1, anchor) if finest else None, ()
        level = 0 if coarsest > max(self.tiers, default=0) else 1 + self.tiers[::-1].index(coarsest)
        return _network_need(levels, level, anchor) if finest else None, ()

    def _highest(self, wanted: views.NetworkTopology, field_: str) -> tuple[int, FieldError | None]:
        """Return the highest allowed tier; -1 if none is stated.

        The tier above all HyperNodes is the cluster.
        """
        top = max(self.tiers, default=0) + 1
        if wanted.highest_tier_name:
            tiers = [h.tier for h in self.hypernodes.values() if h.tier_name == wanted.highest_tier_name]
            if tiers:
                return max(tiers), None
            known = sorted({h.tier_name for h in self.hypernodes.values() if h.tier_name})
            message = f"no HyperNode has this tier name; known names: {', '.join(known) or 'none'}"
            return -1, FieldError.invalid(f"{field_}.highestTierName", wanted.highest_tier_name, message)
        if wanted.highest_tier_allowed is None:
            return -1, None
        if wanted.highest_tier_allowed >= top:
            return top, None
        allowed = [tier for tier in self.tiers if tier <= wanted.highest_tier_allowed]
        if allowed:
            return allowed[-1], None
        lowest = (
            f"the lowest tier of any HyperNode is {self.tiers[0]}" if self.tiers else "there is no HyperNode"
        )
        return -1, FieldError.invalid(f"{field_}.highestTierAllowed", wanted.highest_tier_allowed, lowest)

    def _tier_names(self) -> tuple[str, ...]:
        names_by_tier: dict[int, set[str]] = {}
        for hypernode in self.hypernodes.values():
            names_by_tier.setdefault(hypernode.tier, set()).add(hypernode.tier_name)
        return tuple(
            next(iter(names_by_tier[tier])) if len(names_by_tier[tier]) == 1 else "" for tier in self.tiers
        )

    def constraint(
        self, wanted: views.TopologyConstraint | None, field_: str
    ) -> tuple[TopologyNeed | None, tuple[FieldError, ...]]:
        """Return the need of KAI's ``topologyConstraint``."""
        return self._constraint(wanted, *(f"{field_}.{name}" for name in _CONSTRAINT))

    def _constraint(
        self, wanted: views.TopologyConstraint | None, place: str, required: str, preferred: str
    ) -> tuple[TopologyNeed | None, tuple[FieldError, ...]]:
        """Return the need.

        ``place``, ``required``, ``preferred``: fields with the topology and its
            required and preferred level.
        """
        if wanted is None or not (wanted.required_topology_level or wanted.preferred_topology_level):
            return None, ()
        topology = self.topologies.get(wanted.topology)
        if topology is None:
            known_names = ", ".join(sorted(self.topologies)) or "none"
            message = f"the Topology does not exist; known Topologies: {known_names}"
            return None, (FieldError.invalid(place, wanted.topology, message),)
        problems = []
        indices = []
        for name, level in (
            (required, wanted.required_topology_level),
            (preferred, wanted.preferred_topology_level),
        ):
            position = _index(topology, level) if level else -1
            if level and position < 0:
                levels = ", ".join(_shown(known) for known in topology.levels)
                message = f"Topology {topology.name} has no such level; its levels: {levels}"
                problems.append(FieldError.invalid(name, level, message))
            indices.append(position)
        if problems:
            return None, tuple(problems)
        return _need(topology, *indices), ()

    def gang_need(self, annotations: Mapping[str, str]) -> tuple[TopologyNeed | None, tuple[FieldError, ...]]:
        """Return the need of a gang in annotations of its pods, KAI's or Kueue's."""
        if names.TOPOLOGY_KAI in annotations:
            return self._constraint(
                views.TopologyConstraint(
                    annotations[names.TOPOLOGY_KAI],
                    annotations.get(names.TOPOLOGY_REQUIRED_KAI, ""),
                    annotations.get(names.TOPOLOGY_PREFERRED_KAI, ""),
                ),
                *(f"metadata.annotations[{name}]" for name in _ANNOTATIONS_KAI),
            )
        required = annotations.get(names.PODSET_REQUIRED, "")
        preferred = annotations.get(names.PODSET_PREFERRED, "")
        if required and preferred:
            message = f"{names.PODSET_REQUIRED} is set too: a gang sets only one of them"
            place = f"metadata.annotations[{names.PODSET_PREFERRED}]"
            return None, (FieldError.invalid(place, preferred, message),)
        if not required and not preferred:
            return None, ()
        return self._label(required or preferred, required=bool(required)), ()

    def segment_need(
        self, annotations: Mapping[str, str]
    ) -> tuple[int, TopologyNeed | None, tuple[FieldError, ...]]:
        """Return the size of a segment of neighbours by index, and its need.

        The size is 0 if the annotations define no segments.
        """
        slices = annotations.get(names.PODSET_SLICE_REQUIRED, "")
        key = names.PODSET_SLICE_SIZE if slices else names.SEGMENT_SIZE_KAI
        text = annotations.get(key, "")
        if not text:
            return 0, None, ()
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**6):
            place = f"metadata.annotations[{key}]"
            return 0, None, (FieldError.invalid(place, text, "must be a whole number of at least 1"),)
        if slices:
            return int(text), self._label(slices, required=True), ()
        required = annotations.get(names.SEGMENT_REQUIRED_KAI, "")
        preferred = annotations.get(names.SEGMENT_PREFERRED_KAI, "")
        wanted = views.TopologyConstraint(annotations.get(names.TOPOLOGY_KAI, ""), required, preferred)
        need, problems = self.constraint(wanted, f"metadata.annotations[{names.SEGMENT_SIZE_KAI}]")
        return (int(text) if need is not None else 0), need, problems

    def _label(self, label: str, *, required: bool) -> TopologyNeed:
        """Return the need for a node label.

        It is a level of the first Topology with that label, else a level of its own.
        """
        for name in sorted(self.topologies):
            position = _index(self.topologies[name], label)
            if position >= 0:
                return _need(
                    self.topologies[name], position if required else -1, -1 if required else position
                )
        return TopologyNeed(label, (Level(label),), 0 if required else -1, -1 if required else 0)


# ---------------------------------------------------------------------- levels


@lru_cache(maxsize=256)
def _levels(tiers: tuple[int, ...], tier_names: tuple[str, ...]) -> tuple[Level, ...]:
    """Return the levels: the cluster, then the tiers in descending order."""
    levels = [Level("", "the whole cluster")]
    for tier, name in sorted(zip(tiers, tier_names, strict=True), reverse=True):
        levels.append(Level(f"{HYPERNODE}tier-{tier}", f"tier {tier} ({name})" if name else f"tier {tier}"))
    return tuple(levels)


@lru_cache(maxsize=4096)
def _network_need(levels: tuple[Level, ...], required: int, anchor: str) -> TopologyNeed:
    return TopologyNeed(HYPERNODES, levels, required, len(levels) - 1, nested=False, anchor=anchor)


def _need(topology: views.Topology, required: int, preferred: int) -> TopologyNeed:
    return _kai_need(topology.name, topology.levels, required, preferred)


@lru_cache(maxsize=4096)
def _kai_need(
    name: str, levels: tuple[views.TopologyLevel, ...], required: int, preferred: int
) -> TopologyNeed:
    shown = tuple(Level(level.node_label, level.alias) for level in levels)
    return TopologyNeed(name, shown, required, preferred if preferred > required else -1)


def _index(topology: views.Topology, level: str) -> int:
    for position, known in enumerate(topology.levels):
        if level in (known.node_label, known.alias):
            return position
    return -1


def _shown(level: views.TopologyLevel) -> str:
    return f"{level.node_label} ({level.alias})" if level.alias else level.node_label


# ---------------------------------------------------------------------- HyperNodes


def _build(hypernodes: Mapping[str, views.HyperNode], nodes: Mapping[str, views.NodeObject]) -> _Tree:
    problems: list[tuple[str, str]] = []
    members = {name: _members(hypernodes[name], hypernodes, problems) for name in sorted(hypernodes)}
    parents: dict[str, str] = {}
    for name, below in members.items():
        for child in below:
            if child in parents:
                message = (
                    f"is a member of both {parents[child]} and {name}; it counts as one of {parents[child]}"
                )
                problems.append((name, f"HyperNode {child} {message}"))
            else:
                parents[child] = name
    nodes_of: dict[str, frozenset[str]] = {}
    labelled = _Labelled(nodes)
    for name in sorted(hypernodes, key=lambda each: (hypernodes[each].tier, each)):
        own = set(_own_nodes(hypernodes[name], nodes, labelled))
        for child in members[name]:
            if parents.get(child) == name:
                own |= nodes_of[child]
        nodes_of[name] = frozenset(own)
    labels, doubles = _labels(hypernodes, nodes_of)
    return _Tree(
        tuple(sorted({item.tier for item in hypernodes.values()})),
        labels,
        nodes_of,
        parents,
        (*problems, *doubles),
    )


def _members(
    hypernode: views.HyperNode, hypernodes: Mapping[str, views.HyperNode], problems: list[tuple[str, str]]
) -> list[str]:
    """Return the HyperNodes directly below one.

    Every member is in a lower tier, so there is no cycle.
    """
    below: dict[str, None] = {}
    for member in hypernode.members:
        if member.type != KIND_HYPERNODE:
            continue
        if member.name and member.name not in hypernodes:
            message = f"HyperNode {hypernode.name} has a member {member.name} that does not exist"
            problems.append((hypernode.name, message))
        for name in _matching(member, hypernodes):
            if hypernodes[name].tier < hypernode.tier:
                below[name] = None
            elif member.name or name != hypernode.name:
                message = (
                    f"HyperNode {hypernode.name} (tier {hypernode.tier}) has {name} (tier "
                    f"{hypernodes[name].tier}) as a member, which is ignored: members must be of lower tiers"
                )
                problems.append((hypernode.name, message))
    return sorted(below)


class _Labelled:
    """Nodes by label value, indexed per label on first use."""

    def __init__(self, nodes: Mapping[str, views.NodeObject]) -> None:
        self._nodes = nodes
        self._by_key: dict[str, dict[str, list[str]]] = {}

    def selected(self, wire: LabelSelector) -> Iterable[str]:
        """Return the nodes that a selector matches."""
        selector, candidates = from_label_selector(wire), self._candidates(wire)
        return (name for name in candidates if selector.matches(self._nodes[name].labels))

    def _candidates(self, wire: LabelSelector) -> Iterable[str]:
        for key, value in (wire.match_labels or {}).items():
            values = self._by_key.get(key)
            if values is None:
                values = self._by_key[key] = {}
                for name, node in self._nodes.items():
                    if key in node.labels:
                        values.setdefault(node.labels[key], []).append(name)
            return values.get(value, ())
        return self._nodes


def _own_nodes(
    hypernode: views.HyperNode, nodes: Mapping[str, views.NodeObject], labelled: _Labelled
) -> Iterable[str]:
    for member in hypernode.members:
        if member.type == KIND_HYPERNODE:
            continue
        if member.labels is not None:
            yield from labelled.selected(member.labels)
        else:
            yield from _matching(member, nodes)


def _matching(member: views.HyperNodeMember, candidates: Mapping[str, object]) -> list[str]:
    if member.name:
        return [member.name] if member.name in candidates else []
    if not member.pattern:
        return []
    pattern = patterns.compiled(member.pattern)
    return sorted(name for name in candidates if pattern.search(name))


def _labels(
    hypernodes: Mapping[str, views.HyperNode], nodes_of: Mapping[str, frozenset[str]]
) -> tuple[dict[str, dict[str, str]], list[tuple[str, str]]]:
    """Return the labels of the nodes, and the problems of nodes in two HyperNodes of a tier."""
    labels: dict[str, dict[str, str]] = {}
    doubles: dict[tuple[str, str], int] = {}
    for name in sorted(hypernodes, key=lambda each: (hypernodes[each].tier, each)):
        key = f"{HYPERNODE}tier-{hypernodes[name].tier}"
        for node in nodes_of[name]:
            carried = labels.setdefault(node, {})
            if key in carried:
                pair = (carried[key], name)
                doubles[pair] = doubles.get(pair, 0) + 1
                continue
            carried[key] = name
            tier = f"{hypernodes[name].tier}={name}"
            path = carried.get(HYPERNODE_PATH)
            carried[HYPERNODE_PATH] = f"{path},{tier}" if path else tier
    problems = [
        (
            second,
            f"HyperNodes {first} and {second} (both tier {hypernodes[first].tier}) have {count} "
            f"{'node' if count == 1 else 'nodes'} in common; {first} keeps {'it' if count == 1 else 'them'}",
        )
        for (first, second), count in sorted(doubles.items())
    ]
    return labels, problems
