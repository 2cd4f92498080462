"""Input artifacts that name the key alone under which an earlier node of the workflow stored them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.node import NodeStatus

Json = dict[str, Any]


def has_key_alone(artifact: Mapping[str, Any]) -> bool:
    """Return whether an artifact names a key and no bucket: that of the store of this platform is meant."""
    source = artifact.get("s3") or {}
    return bool(source.get("key")) and not source.get("bucket") and not artifact.get("store")


def with_stored_keys(template: Json, nodes: Iterable[NodeStatus]) -> Json:
    """Return a template with the artifacts that earlier nodes stored for inputs with a key alone.

    A key may be that of an artifact, of a file below a stored directory, or of a
    directory below which several artifacts were stored.

    Raises :class:`EvaluationError` if no node stored one.
    """
    artifacts = (template.get("inputs") or {}).get("artifacts") or ()
    if not any(map(has_key_alone, artifacts)):
        return template
    stored = {}
    for node in nodes:
        for artifact in (node.outputs or {}).get("artifacts") or ():
            key = (artifact.get("s3") or {}).get("key")
            if key and artifact.get("store"):
                stored[key.strip("/")] = artifact["store"]
    found = [_stored(artifact, stored) if has_key_alone(artifact) else artifact for artifact in artifacts]
    return {**template, "inputs": {**template["inputs"], "artifacts": found}}


def _stored(artifact: Json, stored: Mapping[str, Json]) -> Json:
    key = artifact["s3"]["key"].strip("/")
    if key in stored:
        return {**artifact, "store": stored[key]}
    folder = key.rpartition("/")[0]
    while folder:
        if folder in stored:
            return {**artifact, "store": stored[folder], "subPath": key.removeprefix(f"{folder}/")}
        folder = folder.rpartition("/")[0]
    parts = [
        {**store, "name": name.removeprefix(f"{key}/")}
        for name, store in sorted(stored.items())
        if name.startswith(f"{key}/")
    ]
    if parts:
        return {**artifact, "store": {"parts": parts}}
    if artifact.get("optional"):
        return artifact
    raise EvaluationError(
        f"inputs.artifacts.{artifact.get('name')}: no earlier node of this workflow stored the key {key!r}"
    )
