"""Volcano's HyperNode (``topology.volcano.sh/v1alpha1``), KAI's Topology (``kai.scheduler/v1alpha1``), and what
PodGroups ask of them.

A HyperNode is a domain by its own name, a Topology is a list of node labels. Errors in its fields are in
``problems``; a member with an unreadable selector selects nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.api import patterns
from windlass.api.errors import FieldError
from windlass.api.views.podshape import LabelSelector
from windlass.api.views.wire import EMPTY, intern, metadata, moment, part, split

NODE, HYPERNODE = "Node", "HyperNode"


class NetworkTopology(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Volcano's ``networkTopology`` of a group or a part of one. ``mode`` is ``hard`` or ``soft``."""

    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class TopologyConstraint(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """KAI's ``topologyConstraint``: levels by their node label, or by their alias."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class HyperNodeMember(msgspec.Struct, frozen=True, gc=False):
    """Member of a HyperNode: nodes or other HyperNodes, by name, by pattern or (nodes) by labels."""

    type: str = NODE
    name: str = ""
    pattern: str = ""
    labels: LabelSelector | None = None


class HyperNode(msgspec.Struct, gc=False):
    """``node_count``: what its status says; ``None`` if it says nothing."""

    name: str
    uid: str
    resource_version: str
    created: float
    deleted: float
    tier: int
    tier_name: str
    members: tuple[HyperNodeMember, ...]
    node_count: int | None
    labels: Mapping[str, str]
    problems: tuple[FieldError, ...]

    @property
    def key(self) -> str:
        return self.name


class TopologyLevel(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_label: str = ""
    alias: str = ""


class Topology(msgspec.Struct, gc=False):
    """``levels`` from coarse to fine."""

    name: str
    uid: str
    resource_version: str
    created: float
    deleted: float
    levels: tuple[TopologyLevel, ...]
    problems: tuple[FieldError, ...]

    @property
    def key(self) -> str:
        return self.name


class _Exact(msgspec.Struct, gc=False):
    name: str = ""


class _Regex(msgspec.Struct, gc=False):
    pattern: str = ""


class _SelectorWire(msgspec.Struct, gc=False, rename="camel"):
    exact_match: _Exact | None = None
    regex_match: _Regex | None = None
    label_match: LabelSelector | None = None


class _MemberWire(msgspec.Struct, gc=False):
    type: str = NODE
    selector: _SelectorWire | None = None


class _HyperNodeSpec(msgspec.Struct, gc=False, rename="camel"):
    tier: int | None = None
    tier_name: str | None = None
    members: tuple[_MemberWire, ...] | None = None


class _HyperNodeStatus(msgspec.Struct, gc=False, rename="camel"):
    node_count: int | None = None


class _TopologySpec(msgspec.Struct, gc=False):
    levels: tuple[TopologyLevel, ...] | None = None


_spec_decoder = msgspec.json.Decoder(_HyperNodeSpec)
_status_decoder = msgspec.json.Decoder(_HyperNodeStatus)
_levels_decoder = msgspec.json.Decoder(_TopologySpec)
_network_decoder = msgspec.json.Decoder(NetworkTopology)
_constraint_decoder = msgspec.json.Decoder(TopologyConstraint)


def network_topology(raw: msgspec.Raw, field: str, problems: list[FieldError]) -> NetworkTopology | None:
    """A ``networkTopology`` of the wire; ``None`` where there is none."""
    if raw is EMPTY or bytes(raw) == b"null":
        return None
    found = part(_network_decoder, raw, field, NetworkTopology, problems)
    if found.mode not in ("hard", "soft"):
        problems.append(FieldError.not_supported(f"{field}.mode", found.mode, ("hard", "soft")))
    if found.highest_tier_allowed is not None and found.highest_tier_name:
        problems.append(
            FieldError.invalid(
                f"{field}.highestTierName",
                found.highest_tier_name,
                "a tier is named by number or by name, not both",
            )
        )
    return found


def topology_constraint(
    raw: msgspec.Raw, field: str, problems: list[FieldError]
) -> TopologyConstraint | None:
    """A ``topologyConstraint`` of the wire; ``None`` where there is none."""
    if raw is EMPTY or bytes(raw) == b"null":
        return None
    return part(_constraint_decoder, raw, field, TopologyConstraint, problems)


def decode_hypernode(raw: bytes | msgspec.Raw) -> HyperNode:
    """A HyperNode. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_spec_decoder, whole.spec, "spec", _HyperNodeSpec, problems)
    status = part(_status_decoder, whole.status, "status", _HyperNodeStatus, problems)
    tier = spec.tier or 0
    if tier < 0:
        problems.append(FieldError.invalid("spec.tier", tier, "must be at least 0"))
    members = [
        member
        for at, wire in enumerate(spec.members or ())
        if (member := _member(wire, f"spec.members[{at}]", problems)) is not None
    ]
    return HyperNode(
        name=intern(meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        tier=max(tier, 0),
        tier_name=intern(spec.tier_name or ""),
        members=tuple(members),
        node_count=status.node_count,
        labels=dict(meta.labels or {}),
        problems=tuple(problems),
    )


def _member(wire: _MemberWire, field: str, problems: list[FieldError]) -> HyperNodeMember | None:
    if wire.type not in (NODE, HYPERNODE):
        problems.append(FieldError.not_supported(f"{field}.type", wire.type, (NODE, HYPERNODE)))
        return None
    selector = wire.selector or _SelectorWire()
    given = [selector.exact_match, selector.regex_match, selector.label_match]
    if sum(one is not None for one in given) != 1:
        problems.append(
            FieldError(f"{field}.selector", "exactly one of exactMatch, regexMatch and labelMatch is needed")
        )
        return None
    if selector.exact_match is not None:
        return HyperNodeMember(wire.type, name=intern(selector.exact_match.name))
    if selector.label_match is not None:
        if wire.type != NODE:
            problems.append(FieldError(f"{field}.selector.labelMatch", "is for members of type Node only"))
            return None
        return HyperNodeMember(wire.type, labels=selector.label_match)
    pattern = selector.regex_match.pattern if selector.regex_match is not None else ""
    try:
        patterns.compiled(pattern)
    except patterns.PatternError as error:
        problems.append(
            FieldError.invalid(
                f"{field}.selector.regexMatch.pattern",
                pattern,
                f"is not a regular expression of Go (RE2): {error}",
            )
        )
        return None
    return HyperNodeMember(wire.type, pattern=pattern)


def decode_topology(raw: bytes | msgspec.Raw) -> Topology:
    """A Topology of KAI. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_levels_decoder, whole.spec, "spec", _TopologySpec, problems)
    levels = spec.levels or ()
    if not levels:
        problems.append(FieldError.required("spec.levels", "a topology has at least one level"))
    labels = [level.node_label for level in levels]
    for at, label in enumerate(labels):
        if not label:
            problems.append(FieldError.required(f"spec.levels[{at}].nodeLabel", "can not be empty"))
        elif label in labels[:at]:
            problems.append(FieldError.duplicate(f"spec.levels[{at}].nodeLabel", label))
    return Topology(
        name=intern(meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        levels=tuple(levels),
        problems=tuple(problems),
    )
