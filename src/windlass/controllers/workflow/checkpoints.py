"""Checkpoints of attempts: a directory that all attempts of a node share."""

from __future__ import annotations

from typing import Any

from windlass.kits.hashes import fnv32a
from windlass.workflow.node import NodeStatus

Json = dict[str, Any]
FOLDER = "/var/run/windlass/checkpoint"
VOLUME = "windlass-artifacts"
VARIABLE = "WINDLASS_CHECKPOINT_DIR"


def resumes(template: Json) -> bool:
    """Return whether an attempt continues from the checkpoint of the one before."""
    return (template.get("retryStrategy") or {}).get("resume") == "FromCheckpoint"


def add_checkpoint(container: Json, workflow: Json, node: NodeStatus) -> None:
    """Mount the directory of a node's attempts, and tell the container where it is."""
    name = node.name
    if (node.node_flag or {}).get("retried"):
        name = name.rpartition("(")[0]
    folder = f"checkpoints/{workflow['metadata'].get('uid', '')}-{fnv32a(name)}"
    mount = {"name": VOLUME, "mountPath": FOLDER, "subPath": folder}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    container["env"] = [*(container.get("env") or ()), {"name": VARIABLE, "value": FOLDER}]
