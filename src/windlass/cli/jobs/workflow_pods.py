"""Pods of workflows with a task that failed after its program succeeded, for example at an output artifact."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from windlass.api.resources import AIGC_WORKFLOWS, WORKFLOWS
from windlass.cli.errors import if_served
from windlass.cli.jobs.jobs import Job, Object, pod_phase

if TYPE_CHECKING:
    from windlass.client.blocking import BlockingClient

_KINDS = {kind.kind: kind for kind in (WORKFLOWS, AIGC_WORKFLOWS)}
_SINGLE_READS = 3
"""Maximum number of workflows that are read one by one."""
Key = tuple[str, str, str]


def judge(client: BlockingClient, jobs: Iterable[Job]) -> None:
    """Write into jobs of one pod how their tasks failed. Workflows of pods without outputs are not read."""
    found = [(job, key) for job in jobs if (key := _workflow_of(job)) is not None]
    read = _read(client, {key for _, key in found})
    for job, key in found:
        job.refused = _failure(job.obj, read[key].get("status") or {}) if key in read else ""


def _read(client: BlockingClient, wanted: set[Key]) -> dict[Key, Object]:
    """Return workflows. Many are read with one request for each kind and namespace."""
    if len(wanted) <= _SINGLE_READS:
        single = {
            key: if_served(lambda at=key: client.find(_KINDS[at[0]], at[2], at[1]), None) for key in wanted
        }
        return {key: workflow for key, workflow in single.items() if workflow is not None}
    read: dict[Key, Object] = {}
    for kind, namespace in {key[:2] for key in wanted}:
        for one in if_served(lambda at=(kind, namespace): client.list(_KINDS[at[0]], at[1]).items, []):
            read[kind, namespace, one["metadata"]["name"]] = one
    return read


def _workflow_of(job: Job) -> Key | None:
    """Return kind, namespace and name of the workflow of a pod that succeeded and has outputs."""
    from windlass.controllers.workflow import labels

    if job.kind != "Pod" or pod_phase(job.obj) != "Succeeded":
        return None
    metadata = job.obj["metadata"]
    if labels.OUTPUTS not in (metadata.get("annotations") or {}):
        return None
    owners = metadata.get("ownerReferences") or ()
    for one in owners:
        if one.get("controller") and one.get("kind") in _KINDS:
            return one["kind"], job.namespace, one["name"]
    return None


def _failure(pod: Object, status: Object) -> str:
    """Return phase and message of the node of a pod that failed; empty if it did not, or the nodes are elsewhere."""
    from windlass.controllers.workflow import labels
    from windlass.controllers.workflow.storage import read_nodes

    identity = pod["metadata"]["annotations"].get(labels.NODE_ID) or ""
    node = read_nodes(status, []).get(identity)
    if node is None or node.phase not in ("Failed", "Error"):
        return ""
    return f"{node.phase}: {node.message}" if node.message else str(node.phase)
