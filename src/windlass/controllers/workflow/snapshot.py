"""Observed surroundings of a workflow, for its reconciliation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.controllers.workflow.objects import KindLookup
from windlass.controllers.workflow.observe import WorkflowPod
from windlass.workflow.node import NodeStatus
from windlass.workflow.run import Surroundings

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CapturedOutputs:
    """Outputs from a pod's log, and what is wrong with them.

    ``unreadable``: the log could not be read, which may pass. ``failure``: why they are
    those of a failure.
    """

    outputs: Json
    problem: str = ""
    unreadable: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class WorkflowSnapshot:
    """Observed surroundings of a workflow.

    ``pods``: node id → pod. ``captured``: node id → outputs of a pod that has ended.
    ``objects``: node id → object of a ``resource`` template; ``None``: it does not exist.
    ``templates``: scope → spec. ``refused``: node id → why its pod or object was refused.
    ``over_quota``: node id → refusal by a quota; these nodes do not begin at this look.
    ``created``: ids of such nodes with a pod: it is not created again.
    ``reused``: nodes of another workflow that a request takes results over from.
    ``config_maps``: names that exist. ``chunks``: ConfigMaps with nodes of this workflow.
    ``scheduler``: scheduler of pods that name none; empty: the server's default.
    """

    nodes: dict[str, NodeStatus]
    pods: Mapping[str, WorkflowPod]
    now: float
    captured: Mapping[str, CapturedOutputs] = field(default_factory=dict)
    objects: Mapping[str, Json | None] = field(default_factory=dict)
    templates: Mapping[str, Json] = field(default_factory=dict)
    surroundings: Surroundings = field(default_factory=Surroundings)
    lookup: KindLookup = lambda api_version, kind: None
    refused: Mapping[str, str] = field(default_factory=dict)
    over_quota: Mapping[str, str] = field(default_factory=dict)
    created: frozenset[str] = frozenset()
    config_maps: frozenset[str] = frozenset()
    chunks: tuple[str, ...] = ()
    reused: Mapping[str, NodeStatus] = field(default_factory=dict)
    claims: frozenset[str] = frozenset()
    scheduler: str = ""
