"""Nodes in the status of a workflow: plain, or compressed where there are many."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import msgspec

from windlass.workflow.node import NodeStatus, convert_nodes, decode_nodes

Json = dict[str, Any]
PLAIN_BYTES = 128 * 1024
"""Maximum size (bytes) of nodes that are stored as they are."""
CHUNK_BYTES = 700 * 1024
"""Maximum size (bytes) of compressed nodes in one ConfigMap."""
OBJECT_BYTES = 1_000_000
"""Maximum size (bytes) of a workflow with its compressed nodes."""


def read_nodes(status: Json, chunks: list[bytes]) -> dict[str, NodeStatus]:
    """Return the nodes of a status. ``chunks``: compressed nodes of ConfigMaps, in their order."""
    packed = status.get("compressedNodes")
    if packed:
        return decode_nodes(gzip.decompress(base64.b64decode(packed)))
    if chunks:
        try:
            return decode_nodes(gzip.decompress(b"".join(chunks)))
        except EOFError:  # a part was deleted: the nodes follow from the pods again
            return {}
    return convert_nodes(status.get("nodes") or {})


def store_nodes(workflow: Json, status: Json, raw: bytes) -> list[bytes]:
    """Write encoded nodes into the new status of a workflow. Return the parts that are too large for it.

    The form is Argo's: ``nodes``, or ``compressedNodes``, or ``offloadNodeStatusVersion``
    with the nodes elsewhere.
    """
    for field in ("nodes", "compressedNodes", "offloadNodeStatusVersion"):
        status.pop(field, None)
    if len(raw) <= PLAIN_BYTES:
        status["nodes"] = msgspec.json.decode(raw)
        return []
    packed = gzip.compress(raw, compresslevel=5, mtime=0)
    rest = msgspec.json.encode({**workflow, "status": status})
    if len(packed) <= CHUNK_BYTES and len(rest) + len(packed) * 4 // 3 <= OBJECT_BYTES:
        status["compressedNodes"] = base64.b64encode(packed).decode()
        return []
    return [packed[at : at + CHUNK_BYTES] for at in range(0, len(packed), CHUNK_BYTES)]
