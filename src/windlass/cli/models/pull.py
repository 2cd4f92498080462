"""Fetch of models to nodes, asked for on the command line."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from windlass.api.errors import StatusError, WindlassError
from windlass.api.fields.model_cache import READY, model_cache
from windlass.api.resources import MODEL_CACHES, NODES
from windlass.cli.invocation import Invocation
from windlass.cli.models.rows import record
from windlass.cli.output.progress import progress
from windlass.modelcache.folder import ModelReference

POLL_SECONDS = 0.5


def reference(source: str, name: str, revision: str, sha256: str) -> ModelReference:
    """Return the model of the flags. A path of this machine stands for its ``file://`` URI."""
    if "://" not in source:
        source = Path(source).expanduser().absolute().as_uri()
    readable = name or posixpath.basename(urlsplit(source).path.rstrip("/")) or urlsplit(source).netloc
    return ModelReference(readable, source, revision, sha256)


def nodes_of(invocation: Invocation, asked: Sequence[str]) -> list[str]:
    """Return the named nodes, or all. Raises an error with the nearest names for an unknown one."""
    known = [node["metadata"]["name"] for node in invocation.client.list(NODES).items]
    for name in asked:
        if name not in known:
            invocation.client.get(NODES, name)
    return list(asked) or known


def ask(invocation: Invocation, model: ModelReference, nodes: Sequence[str], *, pin: bool) -> list[str]:
    """Create the ModelCaches that do not exist; return the names of all."""
    facts = {
        "name": model.name,
        "source": model.source,
        "revision": model.revision,
        "sha256": model.sha256,
    }
    names = []
    for node in nodes:
        body = model_cache(node, model.key, facts, pin=pin)
        names.append(body["metadata"]["name"])
        try:
            invocation.client.create(MODEL_CACHES, body)
        except StatusError as error:
            if error.code != 409:
                raise
            if pin:
                invocation.client.patch(MODEL_CACHES, names[-1], {"spec": {"pin": True}})
    return names


def wait(invocation: Invocation, names: Sequence[str]) -> list[dict[str, Any]]:
    """Wait until every model is ready, with a bar. Raises :class:`WindlassError` for one that cannot be had."""
    with progress(invocation, "fetching", 1000) as tell:
        while True:
            found = [record(cache) for cache in _named(invocation, names)]
            for each in found:
                if each["reason"] and each["state"] != READY:
                    raise _failure(each)
            if len(found) == len(names) and all(each["state"] == READY for each in found):
                return found
            if tell is not None:
                tell(_permille(found))
            invocation.clock.pause(POLL_SECONDS)


def _named(invocation: Invocation, names: Sequence[str]) -> list[Mapping[str, Any]]:
    return [each for each in invocation.client.list(MODEL_CACHES).items if each["metadata"]["name"] in names]


def _permille(found: Sequence[Mapping[str, Any]]) -> int:
    total = sum(each["totalBytes"] or 0 for each in found)
    return min(999, sum(each["sizeBytes"] for each in found) * 1000 // total) if total else 0


def _failure(found: Mapping[str, Any]) -> WindlassError:
    return WindlassError(
        "WL-MODEL-500",
        f"model {found['model']} cannot be had on node {found['node']}: {found['message']}",
        evidence=f"reason {found['reason']} of ModelCache {found['name']}",
        remedies=("windlass model ls", f"windlass model rm {found['model']}"),
    )
