"""Rule by which stored artifacts of a workflow are removed: ``retain`` and Argo's ``artifactGC``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import quantities
from windlass.workflow import words
from windlass.workflow.node import NodeStatus

Json = Mapping[str, Any]
STRATEGIES = ("OnWorkflowCompletion", "OnWorkflowDeletion", "Never")
CONDITION = "ArtifactGCError"
"""Condition of Argo: artifacts of a deleted workflow could not be removed."""
UNTIL = ("ttl", "success", "forever")


@dataclass(frozen=True, slots=True)
class ArtifactRemoval:
    """Files to remove from the store, by their SHA-256.

    ``limit``: maximum size (bytes) of the others, of which the oldest are removed, too. 0: none.
    """

    digests: tuple[str, ...]
    others: tuple[str, ...] = ()
    limit: int = 0

    def __bool__(self) -> bool:
        return bool(self.digests or self.others)


def wanted(spec: Json) -> bool:
    """Return whether artifacts of a workflow may be removed."""
    return bool(spec.get("retain") or spec.get("artifactGC")) or any(_own(spec))


def holds_deletion(spec: Json) -> bool:
    """Return whether a finalizer delays the deletion of a workflow until artifacts are removed."""
    found = (rule.get("strategy") for rule in (spec.get("artifactGC") or {}, *_own(spec)))
    return any(strategy in STRATEGIES[:2] for strategy in found)


def _own(spec: Json) -> Iterator[Json]:
    """Yield ``artifactGC`` of the artifacts in templates."""
    for template in spec.get("templates") or ():
        for artifact in (template.get("outputs") or {}).get("artifacts") or ():
            if rule := artifact.get("artifactGC"):
                yield rule


def at_end(spec: Json, nodes: Iterable[NodeStatus], outputs: Json, phase: str) -> ArtifactRemoval:
    """Return what is removed at the end of a workflow. ``outputs``: those of the workflow, which stay."""
    retain = spec.get("retain") or {}
    kept = {(one.get("store") or {}).get("sha256") for one in outputs.get("artifacts") or ()}
    early = retain.get("intermediate") is False or (
        retain.get("until") == "success" and phase == words.SUCCEEDED
    )
    gone, others = [], []
    for digest, strategy in _stored(spec, nodes):
        if strategy == "OnWorkflowCompletion" or (early and digest not in kept):
            gone.append(digest)
        elif digest not in kept:
            others.append(digest)
    limit = int(quantities.parse(str(retain["maxBytes"]))) if retain.get("maxBytes") else 0
    return ArtifactRemoval(tuple(dict.fromkeys(gone)), tuple(dict.fromkeys(others)) if limit else (), limit)


def at_deletion(spec: Json, nodes: Iterable[NodeStatus], *, by_ttl: bool) -> ArtifactRemoval:
    """Return what is removed before a workflow goes. ``by_ttl``: ``ttlStrategy`` deletes it."""
    until = by_ttl and (spec.get("retain") or {}).get("until") == "ttl"
    found = [digest for digest, strategy in _stored(spec, nodes) if until or strategy == "OnWorkflowDeletion"]
    return ArtifactRemoval(tuple(dict.fromkeys(found)))


def _stored(spec: Json, nodes: Iterable[NodeStatus]) -> Iterator[tuple[str, str]]:
    """Yield digest and strategy of each artifact that a node stored. Memoized nodes share theirs."""
    general = (spec.get("artifactGC") or {}).get("strategy") or "Never"
    for node in nodes:
        if node.type != words.POD or node.memoization_status:
            continue
        for artifact in (node.outputs or {}).get("artifacts") or ():
            digest = (artifact.get("store") or {}).get("sha256")
            strategy = (artifact.get("artifactGC") or {}).get("strategy") or general
            if digest:
                yield digest, strategy


def retain_problems(spec: Json) -> Iterator[tuple[str, Any, str]]:
    """Yield what is wrong with ``retain`` and ``artifactGC``: field, value, message."""
    for field in ("retain", "artifactGC"):
        if spec.get(field) is not None and not isinstance(spec[field], Mapping):
            yield f".{field}", spec[field], "an object is expected"
            return
    strategy = (spec.get("artifactGC") or {}).get("strategy")
    if strategy and strategy not in STRATEGIES:
        yield ".artifactGC.strategy", strategy, f"one of {', '.join(STRATEGIES)} is expected"
    force = (spec.get("artifactGC") or {}).get("forceFinalizerRemoval")
    if force is not None and not isinstance(force, bool):
        yield ".artifactGC.forceFinalizerRemoval", force, "true or false is expected"
    retain = spec.get("retain") or {}
    if (until := retain.get("until")) and until not in UNTIL:
        yield ".retain.until", until, f"one of {', '.join(UNTIL)} is expected"
    if limit := retain.get("maxBytes"):
        try:
            quantities.parse(str(limit))
        except ValueError as problem:
            yield ".retain.maxBytes", limit, str(problem)
