"""Gates of a node before it begins: its locks, and outputs of an earlier node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.workflow import words
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.locks import locks_of
from windlass.workflow.node import NodeStatus
from windlass.workflow.nodes.retries import seconds_of
from windlass.workflow.run import NodeOptions, Run
from windlass.workflow.templates import ProcessedTemplate

Json = dict[str, Any]


def pass_gates(
    run: Run,
    name: str,
    node: NodeStatus | None,
    holder: Mapping[str, Any],
    scope: str,
    processed: ProcessedTemplate,
    options: NodeOptions,
    type_: str,
) -> NodeStatus | None:
    """Take the node's locks and look its outputs up.

    Return a waiting node, a node that succeeded by memoized outputs, or the node as it is.
    """
    synchronization, memoize = processed.template.get("synchronization"), processed.template.get("memoize")
    if node is None and (synchronization or memoize):
        node = run.begin_node(name, type_, holder, scope, options, words.PENDING)
        node.inputs = processed.inputs or None
    if node is None:
        return None
    if synchronization and not _acquire(run, node, synchronization):
        return node
    if memoize:
        _look_up(run, node, memoize)
    return node


def holder_of(run: Run, node: NodeStatus | None = None) -> str:
    """Return the name by which a node, or the whole workflow, holds locks."""
    metadata = run.workflow["metadata"]
    name = f"{metadata.get('namespace', '')}/{run.name}"
    return name if node is None else f"{name}/{node.id}"


def _acquire(run: Run, node: NodeStatus, synchronization: Json) -> bool:
    locks = locks_of(synchronization, run.workflow["metadata"].get("namespace", ""))
    taken = run.surroundings.locks.acquire(locks, holder_of(run, node))
    if taken:
        if not run.may_begin(NodeOptions(exit_handler=run.in_exit_handler(node))):
            run.mark(node, words.FAILED, run.end_message)
            return False
        run.set_waiting(node, taken)
        run.mark(node, words.PENDING, f"Waiting for {taken} lock. {run.surroundings.locks.describe(taken)}")
        return False
    run.set_waiting(node, "")
    node.synchronization_status = {"holding": locks}
    node.message = ""
    return True


def _look_up(run: Run, node: NodeStatus, memoize: Json) -> None:
    cache = ((memoize.get("cache") or {}).get("configMap") or {}).get("name")
    key = memoize.get("key")
    if not cache or not key:
        raise EvaluationError("memoize needs key and cache.configMap.name")
    entry = run.memoized(cache, key)
    hit = entry is not None
    if entry is not None and memoize.get("maxAge"):
        hit = run.now - entry.created <= seconds_of(memoize["maxAge"])
    node.memoization_status = {"hit": hit, "key": key, "cacheName": cache}
    if hit and entry is not None:
        node.outputs = entry.outputs or None
        run.mark(node, words.SUCCEEDED, "")


def release(run: Run) -> None:
    """Give back the locks of nodes that have ended."""
    for node in run.nodes.by_id.values():
        if node.synchronization_status and node.fulfilled:
            run.surroundings.locks.release(holder_of(run, node))
            node.synchronization_status = None
