"""Workflows of both kinds by name, with their nodes."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import AIGC_WORKFLOWS, CONFIG_MAPS, WORKFLOWS, Resource
from windlass.cli.invocation import Invocation
from windlass.cli.text import timestamp
from windlass.controllers.workflow.storage import read_nodes
from windlass.workflow.commands import RequestProblem, find_node
from windlass.workflow.node import NodeStatus

_QUOTED = re.compile(r"'([^']+)'")
KINDS = (WORKFLOWS, AIGC_WORKFLOWS)


@dataclass(frozen=True, slots=True)
class FoundWorkflow:
    """Workflow with its nodes."""

    kind: Resource
    obj: dict[str, Any]
    nodes: dict[str, NodeStatus]

    @property
    def name(self) -> str:
        return self.obj["metadata"]["name"]

    @property
    def namespace(self) -> str:
        return self.obj["metadata"].get("namespace") or "default"

    @property
    def status(self) -> Mapping[str, Any]:
        return self.obj.get("status") or {}

    @property
    def plain(self) -> dict[str, Any]:
        """Return the object with its nodes as they are, however the server keeps them."""
        kept = ("nodes", "compressedNodes", "offloadNodeStatusVersion")
        status = {key: value for key, value in self.status.items() if key not in kept}
        if self.nodes:
            status["nodes"] = msgspec.to_builtins(self.nodes)
        return {**self.obj, "status": status} if status else self.obj

    @property
    def phase(self) -> str:
        return self.status.get("phase") or "Pending"

    @property
    def state(self) -> str:
        """Return the phase, and that the workflow is suspended."""
        return state_of(self.obj)

    @property
    def message(self) -> str:
        """Return the message of the workflow with the names of its nodes."""
        return self.named(str(self.status.get("message") or ""))

    def named(self, message: str) -> str:
        """Return a message with the names of nodes in place of their ids.

        Argo writes ``child 'ID' failed`` into the status, and so does Windlass.
        """
        return _QUOTED.sub(lambda found: f"'{self._name_of(found[1])}'", message)

    def _name_of(self, word: str) -> str:
        node = self.nodes.get(word)
        return node.display_name if node is not None else word

    def node(self, name: str) -> NodeStatus:
        """Return the node that a user means. Raises :class:`WindlassError`."""
        try:
            return find_node(self.nodes, name)
        except RequestProblem as problem:
            raise WindlassError(
                "WL-WORKFLOW-404", str(problem), remedies=(f"windlass workflow show {self.name}",)
            ) from None


def message_of(invocation: Invocation, kind: Resource, obj: dict[str, Any]) -> str:
    """Return the message of a listed workflow with the names of its nodes, which are read if it has ids."""
    message = str((obj.get("status") or {}).get("message") or "")
    if _QUOTED.search(message) is None:
        return message
    return FoundWorkflow(kind, obj, nodes_of(invocation, obj)).named(message)


def state_of(obj: Mapping[str, Any]) -> str:
    """Return the phase of a workflow, and that it is suspended: ``Running (suspended)``."""
    status = obj.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    suspended = (obj.get("spec") or {}).get("suspend") and not status.get("finishedAt")
    return f"{phase} (suspended)" if suspended else phase


def workflows(invocation: Invocation) -> list[tuple[Resource, dict[str, Any]]]:
    """Return all workflows of the namespace, the newest first."""
    found: list[tuple[Resource, dict[str, Any]]] = []
    for kind in KINDS:
        try:
            listed = invocation.client.list(kind, invocation.listed_namespace).items
        except StatusError as error:
            if error.code != 404:
                raise
            continue
        found += [(kind, obj) for obj in listed]
    return sorted(
        found, key=lambda pair: timestamp(pair[1]["metadata"].get("creationTimestamp")), reverse=True
    )


def find(invocation: Invocation, name: str) -> FoundWorkflow:
    """Return the workflow of a name. Raises :class:`WindlassError`."""
    namespace = invocation.home_namespace
    for kind in KINDS:
        try:
            obj = invocation.client.find(kind, name, namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            continue
        if obj is not None:
            return FoundWorkflow(kind, obj, nodes_of(invocation, obj))
    raise WindlassError(
        "WL-WORKFLOW-404",
        f"there is no workflow {name} in namespace {namespace}",
        remedies=("windlass workflow ls", "windlass workflow run FILE"),
    )


def nodes_of(invocation: Invocation, obj: dict[str, Any]) -> dict[str, NodeStatus]:
    """Return the nodes of a workflow, wherever its status keeps them."""
    status = obj.get("status") or {}
    version, chunks = status.get("offloadNodeStatusVersion"), []
    while version:
        metadata = obj["metadata"]
        name = f"{metadata['name']}-nodes-{version}-{len(chunks)}"
        part = invocation.client.find(CONFIG_MAPS, name, metadata.get("namespace"))
        if part is None:
            break
        chunks.append(base64.b64decode(part["binaryData"]["nodes"]))
    return read_nodes(dict(status), chunks)
