"""Preflight of ``windlass install --adopt kai`` in a cluster with KAI Scheduler.

Only reads.

KAI's operator (``configs.kai.scheduler``) runs a scheduler per ``SchedulingShard``. The
shard with an empty ``partitionLabelValue`` serves the PodGroups without a label
``kai.scheduler/node-pool``, on the nodes without one. Only that shard can be adopted.
The pod grouper keeps the label that a PodGroup has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import yaml

from windlass.api.annotations import NODE_POOL_KAI
from windlass.api.resources import CONFIG_MAPS, DEPLOYMENTS, KAI_POD_GROUPS, KAI_QUEUES, NODES, Resource
from windlass.api.views import decode_kai_pod_group, decode_kai_queue, encode
from windlass.cli.install import adopt_common
from windlass.cli.install.adopt_common import GOOD, NOTE, STOP, QueueRow, Report, Switch, listed, title
from windlass.client.blocking import BlockingClient
from windlass.model.cluster.ownership import KAI, requests_device_share
from windlass.model.groups.foreign_groups import kai_problems
from windlass.model.groups.podgroups import group_key, kai_key
from windlass.model.scheduler_config import PLACEMENT
from windlass.plugins.registry import DEFAULT_ACTIONS, KAI_ACTIONS

Json = dict[str, Any]
CONFIGS = Resource("kai.scheduler", "v1", "configs", "Config", False)
SHARDS = Resource("kai.scheduler", "v1", "schedulingshards", "SchedulingShard", False)
CONFIG = "kai-config"
"""Name of the one Config that the operator reads."""
DEFAULT_NAME = DEFAULT_NAMESPACE = "kai-scheduler"
GROUPER = "pod-grouper"
"""Name of the Deployment of the pod grouper."""
_POLICY = "config.yaml"


def preflight(client: BlockingClient) -> Report:
    """Return the report for an administrator.

    Raises ``StatusError`` and ``Unreachable``.
    """
    report = Report(KAI, "KAI", KAI_QUEUES, partial(queue_rows, client), names=(DEFAULT_NAME,))
    config = next((obj for obj in listed(client, CONFIGS) or () if obj["metadata"]["name"] == CONFIG), None)
    if config is None:
        words = f"{CONFIG} does not exist: there is no scheduler of KAI's operator to adopt"
        report.add(STOP, CONFIGS.qualified, words)
    else:
        _processes(client, report, config)
    _nodes(client, report)
    _queues(client, report)
    return report


def queue_rows(client: BlockingClient, names: Sequence[str] = (DEFAULT_NAME,)) -> list[QueueRow]:
    """Return the queues by name with their contents, for pods of these scheduler names."""
    queues = adopt_common.decoded(client, KAI_QUEUES, decode_kai_queue)
    groups = {
        kai_key(group): group for group in adopt_common.decoded(client, KAI_POD_GROUPS, decode_kai_pod_group)
    }
    pods = adopt_common.pods_of(client, names)
    sharing = {group_key(pod) for pod in pods if requests_device_share(pod.annotations)}
    elsewhere = {key for key, group in groups.items() if group.pool and not group.adopted}
    return adopt_common.rows(queues, groups, pods, staying=(sharing & groups.keys()) | elsewhere)


# ---------------------------------------------------------------------- its processes and its policy


def _processes(client: BlockingClient, report: Report, config: Json) -> None:
    spec = config.get("spec") or {}
    settings = spec.get("global") or {}
    name, namespace = (
        settings.get("schedulerName") or DEFAULT_NAME,
        spec.get("namespace") or DEFAULT_NAMESPACE,
    )
    report.names = report.grouped = (name,)
    report.look = partial(queue_rows, client, report.names)
    key = settings.get("nodePoolLabelKey") or NODE_POOL_KAI
    if key != NODE_POOL_KAI:
        words = f"nodePoolLabelKey is {key}: Windlass can hand over only by {NODE_POOL_KAI}"
        report.add(STOP, f"{CONFIGS.singular} {CONFIG}", words)
    shards = listed(client, SHARDS) or []
    values = [(shard.get("spec") or {}).get("partitionLabelValue") or "" for shard in shards]
    if values != [""]:
        listing = (
            ", ".join(
                f"{s['metadata']['name']} ({v or 'all others'})" for s, v in zip(shards, values, strict=True)
            )
            or "none"
        )
        words = (
            f"{listing}: Windlass uses all nodes, and can replace only a single shard without a label value"
        )
        report.add(STOP, SHARDS.qualified, words)
    deployments = []
    for shard in shards:
        deployment_name = f"{name}-{shard['metadata']['name']}"
        deployment = client.find(DEPLOYMENTS, deployment_name, namespace)
        if deployment is None:
            report.add(STOP, f"{namespace}/{deployment_name}", "this Deployment does not exist")
            continue
        deployments.append(deployment)
        report.add(GOOD, title(deployment), adopt_common.state_text(deployment))
        if (shard.get("spec") or {}).get("args", {}).get("restrict-node-scheduling", "false") != "false":
            words = "restrict-node-scheduling is set: Windlass also uses nodes without the worker labels"
            report.add(STOP, title(deployment), words)
        _policy(client, report, shard, deployment_name, namespace)
    _grouper(client, report, spec, namespace)
    path = ("spec", "scheduler", "replicas")
    report.switches.append(Switch(CONFIGS, config, path, deployments))
    report.add(GOOD, "schedulerName", name)


def _grouper(client: BlockingClient, report: Report, spec: Json, namespace: str) -> None:
    """Check that KAI's pod grouper runs.

    Pods still wait for the PodGroup that it creates when KAI's scheduler is gone.
    """
    found = client.find(DEPLOYMENTS, GROUPER, namespace)
    ready = ((found or {}).get("status") or {}).get("readyReplicas") or 0
    if found is not None and ready:
        report.add(GOOD, title(found), adopt_common.state_text(found))
        return
    off = ((spec.get("podGrouper") or {}).get("service") or {}).get("enabled") is False
    words = (
        adopt_common.state_text(found)
        if found is not None
        else f"this Deployment does not exist{f' ({CONFIG} disables it)' if off else ''}"
    )
    report.add(NOTE, f"{namespace}/{GROUPER}", f"{words}: new pods get no PodGroup, and wait for one")
    report.against.append(
        f"{namespace}/{GROUPER}: {words}: without KAI's pod grouper, pods would wait for their PodGroup forever"
        f" (kubectl -n {namespace} get deployment {GROUPER})"
    )


def _policy(client: BlockingClient, report: Report, shard: Json, name: str, namespace: str) -> None:
    """Read its actions and placement plugins.

    All other policy is built in on both sides.
    """
    found = client.find(CONFIG_MAPS, name, namespace)
    text = ((found or {}).get("data") or {}).get(_POLICY, "")
    policy = yaml.safe_load(text) if text else None
    if not isinstance(policy, dict):
        report.add(NOTE, "configuration", "none was found: Windlass starts with its own default policy")
        return
    actions = [word.strip() for word in str(policy.get("actions") or "").split(",")]
    plugins = [plugin for tier in policy.get("tiers") or () for plugin in tier.get("plugins") or ()]
    placing = [plugin for plugin in plugins if plugin.get("name") in PLACEMENT]
    actions_kept = [action for action in DEFAULT_ACTIONS if action not in KAI_ACTIONS or action in actions]
    report.configuration = yaml.safe_dump(
        {"actions": ", ".join(actions_kept), "tiers": [{"plugins": placing}] if placing else []},
        sort_keys=False,
    )
    report.add(
        GOOD,
        "configuration",
        f"actions {', '.join(actions)}; placement {', '.join(plugin['name'] for plugin in placing)}",
    )
    for action in actions:
        if action not in DEFAULT_ACTIONS:
            report.add(NOTE, "configuration", f"action {action} exists only in KAI")
    for plugin in plugins:
        if plugin.get("arguments") and plugin not in placing:
            report.add(
                NOTE, "configuration", f"arguments of {plugin['name']} are ignored: {plugin['arguments']}"
            )
    if (shard.get("spec") or {}).get("usageDBConfig"):
        report.add(NOTE, "configuration", "usageDBConfig is ignored: shares do not depend on past usage")


# ---------------------------------------------------------------------- what is in the cluster


def _nodes(client: BlockingClient, report: Report) -> None:
    count = len(client.list(NODES, labels=NODE_POOL_KAI).items)
    if count:
        words = f"{count} nodes have the label {NODE_POOL_KAI}: this shard of KAI does not use them, but Windlass would"
        report.add(STOP, NODES.qualified, words)


def _queues(client: BlockingClient, report: Report) -> None:
    queues, groups = listed(client, KAI_QUEUES), listed(client, KAI_POD_GROUPS)
    for resource, items in ((KAI_QUEUES, queues), (KAI_POD_GROUPS, groups)):
        if items is None:
            report.add(STOP, resource.qualified, "the cluster does not have this kind: KAI is not installed")
    if queues is None or groups is None:
        return
    for queue in map(decode_kai_queue, map(encode, queues)):
        for problem in queue.problems:
            report.add(NOTE, f"queue {queue.name}", str(problem))
    seen: Counter[str] = Counter()
    for group in map(decode_kai_pod_group, map(encode, groups)):
        seen[group.name] += 1
        for problem in kai_problems(group):
            report.add(NOTE, f"podgroup {group.key}", str(problem))
    duplicates = sorted(name for name, count in seen.items() if count > 1)
    if duplicates:
        words = f"{', '.join(duplicates)} in several namespaces: KAI distinguishes them only by name"
        report.add(STOP, KAI_POD_GROUPS.qualified, words)
    report.queues = report.look()
    for row in report.queues:
        if row.staying:
            words = f"{row.staying} gangs stay with KAI: they request GPU shares, or belong to another shard"
            report.add(NOTE, f"queue {row.name}", words)
    staying = sum(row.staying for row in report.queues)
    if staying:
        report.against.append(
            f"{staying} gangs that stay with KAI: its binder reserves the GPUs that they share"
        )
