"""Nodes of a workflow: one for each template that is executed, as in ``status.nodes``."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.kits.hashes import fnv32a
from windlass.workflow import words

Json = dict[str, Any]
_NAMES = {"boundary_id": "boundaryID", "pod_ip": "podIP"}
_MAX_POD_NAME = 253


def _wire_name(name: str) -> str:
    head, *rest = name.split("_")
    return _NAMES.get(name) or head + "".join(word.title() for word in rest)


class NodeStatus(msgspec.Struct, omit_defaults=True, rename=_wire_name, gc=False):
    """NodeStatus. The fields are those of Argo's ``NodeStatus``.

    ``boundary_id``: the DAG or Steps node that it belongs to; empty for the root.
    ``children``: nodes that follow it.
    ``outbound_nodes``: last nodes inside a DAG or Steps node.
    """

    id: str
    name: str
    display_name: str
    type: str
    phase: str
    template_name: str = ""
    template_scope: str = ""
    template_ref: Json | None = None
    boundary_id: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    host_node_name: str = ""
    inputs: Json | None = None
    outputs: Json | None = None
    children: list[str] = msgspec.field(default_factory=list)
    outbound_nodes: list[str] = msgspec.field(default_factory=list)
    node_flag: Json | None = None
    memoization_status: Json | None = None
    synchronization_status: Json | None = None
    resources_duration: Json | None = None
    progress: str = ""
    managed_object: Json | None = None
    """Object of a ``resource`` or ``job`` template: what it is and when it has succeeded."""
    daemoned: bool = False
    """The pod of a daemon is ready: later nodes begin while it runs."""
    pod_ip: str = ""

    @property
    def ended(self) -> bool:
        return self.phase in words.FULFILLED

    @property
    def fulfilled(self) -> bool:
        """Return whether later nodes may begin: the node has ended, or is a daemon that is ready."""
        return self.daemoned or self.phase in words.FULFILLED

    @property
    def completed(self) -> bool:
        return self.phase in words.COMPLETED

    @property
    def unsuccessful(self) -> bool:
        return self.phase in words.UNSUCCESSFUL

    @property
    def hooked(self) -> bool:
        """Return whether the node belongs to a hook or an exit handler."""
        return bool((self.node_flag or {}).get("hooked"))


_decoder = msgspec.json.Decoder(dict[str, NodeStatus])


def decode_nodes(raw: bytes) -> dict[str, NodeStatus]:
    """Return the nodes of ``status.nodes``. Raises ``msgspec.ValidationError``."""
    return _decoder.decode(raw)


def convert_nodes(nodes: Json) -> dict[str, NodeStatus]:
    """Return the nodes of a decoded ``status.nodes``."""
    return msgspec.convert(nodes, dict[str, NodeStatus])


def encode_nodes(nodes: dict[str, NodeStatus]) -> bytes:
    """Return nodes as JSON, in the order of their ids."""
    return msgspec.json.encode({key: nodes[key] for key in sorted(nodes)})


def node_id(workflow: str, name: str) -> str:
    """Return the id that Argo gives a node."""
    return workflow if name == workflow else f"{workflow}-{fnv32a(name)}"


def pod_name(workflow: str, node: NodeStatus) -> str:
    """Return the name of a node's pod, with the template in it as in Argo."""
    if node.id == workflow:
        return workflow
    suffix = node.id.removeprefix(f"{workflow}-")
    template = node.template_name or str((node.template_ref or {}).get("template") or "")
    head = f"{workflow}-{template}" if template else workflow
    return f"{head[: _MAX_POD_NAME - 1 - len(suffix)]}-{suffix}"
