"""What ``windlass install --adopt kai`` finds in a cluster that runs KAI Scheduler. Reads, writes nothing.

Its operator (``configs.kai.scheduler``) renders a scheduler per ``SchedulingShard``. The shard whose
``partitionLabelValue`` is empty serves the PodGroups that have no label ``kai.scheduler/node-pool``, on the nodes
that have none; that one can be taken over. Its pod grouper keeps the label that stands on a PodGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import yaml

from windlass.api.annotations import NODE_POOL_KAI
from windlass.api.resources import CONFIG_MAPS, KAI_POD_GROUPS, KAI_QUEUES, NODES, Resource
from windlass.api.views import decode_kai_pod_group, decode_kai_queue, encode
from windlass.cli.install import adopt_common
from windlass.cli.install.adopt_common import GOOD, NOTE, STOP, QueueRow, Report, Switch, listed, title
from windlass.cli.install.objects import DEPLOYMENTS
from windlass.client.blocking import BlockingClient
from windlass.model.cluster.object_cache import kai_key
from windlass.model.cluster.ownership import KAI, keeps_devices
from windlass.model.groups.foreign_groups import kai_problems
from windlass.model.groups.podgroups import group_key
from windlass.model.scheduler_config import PLACEMENT
from windlass.plugins.registry import DEFAULT_ACTIONS, KAI_ACTIONS

Json = dict[str, Any]
CONFIGS = Resource("kai.scheduler", "v1", "configs", "Config", False)
SHARDS = Resource("kai.scheduler", "v1", "schedulingshards", "SchedulingShard", False)
CONFIG = "kai-config"
"""The one Config that its operator heeds."""
DEFAULT_NAME = DEFAULT_NAMESPACE = "kai-scheduler"
GROUPER = "pod-grouper"
"""The Deployment of its pod grouper, as its operator names it."""
_POLICY = "config.yaml"


def preflight(client: BlockingClient) -> Report:
    """Everything that an administrator should know before. Raises ``StatusError``, ``Unreachable``."""
    report = Report(KAI, "KAI", KAI_QUEUES, partial(queue_rows, client), names=(DEFAULT_NAME,))
    config = next((obj for obj in listed(client, CONFIGS) or () if obj["metadata"]["name"] == CONFIG), None)
    if config is None:
        words = f"there is no {CONFIG}: nothing of KAI's operator is to be taken over"
        report.say(STOP, CONFIGS.qualified, words)
    else:
        _processes(client, report, config)
    _nodes(client, report)
    _queues(client, report)
    return report


def queue_rows(client: BlockingClient, names: Sequence[str] = (DEFAULT_NAME,)) -> list[QueueRow]:
    """The queues by name, with what is in them. ``names``: the scheduler names that count."""
    queues = adopt_common.decoded(client, KAI_QUEUES, decode_kai_queue)
    found = {
        kai_key(group): group for group in adopt_common.decoded(client, KAI_POD_GROUPS, decode_kai_pod_group)
    }
    mine = adopt_common.pods_of(client, names)
    sharing = {group_key(pod) for pod in mine if keeps_devices(pod.annotations)}
    elsewhere = {key for key, group in found.items() if group.pool and not group.adopted}
    return adopt_common.rows(queues, found, mine, staying=(sharing & found.keys()) | elsewhere)


# ---------------------------------------------------------------------- its processes and its policy


def _processes(client: BlockingClient, report: Report, config: Json) -> None:
    spec = config.get("spec") or {}
    said = spec.get("global") or {}
    name, namespace = said.get("schedulerName") or DEFAULT_NAME, spec.get("namespace") or DEFAULT_NAMESPACE
    report.names = report.grouped = (name,)
    report.look = partial(queue_rows, client, report.names)
    key = said.get("nodePoolLabelKey") or NODE_POOL_KAI
    if key != NODE_POOL_KAI:
        words = f"nodePoolLabelKey is {key}: Windlass hands over by {NODE_POOL_KAI} only"
        report.say(STOP, f"{CONFIGS.singular} {CONFIG}", words)
    shards = listed(client, SHARDS) or []
    values = [(shard.get("spec") or {}).get("partitionLabelValue") or "" for shard in shards]
    if values != [""]:
        told = (
            ", ".join(
                f"{s['metadata']['name']} ({v or 'all others'})" for s, v in zip(shards, values, strict=True)
            )
            or "none"
        )
        words = (
            f"{told}: Windlass places on all nodes, and can stand only for one shard without a label value"
        )
        report.say(STOP, SHARDS.qualified, words)
    deployments = []
    for shard in shards:
        place = f"{name}-{shard['metadata']['name']}"
        deployment = client.find(DEPLOYMENTS, place, namespace)
        if deployment is None:
            report.say(STOP, f"{namespace}/{place}", "there is no such Deployment")
            continue
        deployments.append(deployment)
        report.say(GOOD, title(deployment), adopt_common.standing(deployment))
        if (shard.get("spec") or {}).get("args", {}).get("restrict-node-scheduling", "false") != "false":
            words = "restrict-node-scheduling: Windlass places on nodes without the worker labels too"
            report.say(STOP, title(deployment), words)
        _policy(client, report, shard, place, namespace)
    _grouper(client, report, spec, namespace)
    path = ("spec", "scheduler", "replicas")
    report.switches.append(Switch(CONFIGS, config, path, deployments))
    report.say(GOOD, "schedulerName", name)


def _grouper(client: BlockingClient, report: Report, spec: Json, namespace: str) -> None:
    """Pods go on waiting for the PodGroup that its pod grouper makes when its scheduler is gone: that has to run."""
    found = client.find(DEPLOYMENTS, GROUPER, namespace)
    ready = ((found or {}).get("status") or {}).get("readyReplicas") or 0
    if found is not None and ready:
        report.say(GOOD, title(found), adopt_common.standing(found))
        return
    off = ((spec.get("podGrouper") or {}).get("service") or {}).get("enabled") is False
    words = (
        adopt_common.standing(found)
        if found is not None
        else f"there is no such Deployment{f' ({CONFIG} turns it off)' if off else ''}"
    )
    report.say(NOTE, f"{namespace}/{GROUPER}", f"{words}: pods that come have no PodGroup, and wait for one")
    report.against.append(
        f"{namespace}/{GROUPER}: {words}: without KAI's pod grouper pods would wait for their PodGroup for ever"
        f" (kubectl -n {namespace} get deployment {GROUPER})"
    )


def _policy(client: BlockingClient, report: Report, shard: Json, name: str, namespace: str) -> None:
    """Of its policy: which actions run, and where work is placed. The rest is built in on both sides."""
    found = client.find(CONFIG_MAPS, name, namespace)
    text = ((found or {}).get("data") or {}).get(_POLICY, "")
    policy = yaml.safe_load(text) if text else None
    if not isinstance(policy, dict):
        report.say(NOTE, "configuration", "none was found: Windlass begins with its own default policy")
        return
    actions = [word.strip() for word in str(policy.get("actions") or "").split(",")]
    plugins = [plugin for tier in policy.get("tiers") or () for plugin in tier.get("plugins") or ()]
    placing = [plugin for plugin in plugins if plugin.get("name") in PLACEMENT]
    kept = [action for action in DEFAULT_ACTIONS if action not in KAI_ACTIONS or action in actions]
    report.configuration = yaml.safe_dump(
        {"actions": ", ".join(kept), "tiers": [{"plugins": placing}] if placing else []}, sort_keys=False
    )
    report.say(
        GOOD,
        "configuration",
        f"actions {', '.join(actions)}; placement {', '.join(plugin['name'] for plugin in placing)}",
    )
    for action in actions:
        if action not in DEFAULT_ACTIONS:
            report.say(NOTE, "configuration", f"action {action} is KAI's own: Windlass has none of that name")
    for plugin in plugins:
        if plugin.get("arguments") and plugin not in placing:
            report.say(
                NOTE, "configuration", f"arguments of {plugin['name']} are not read: {plugin['arguments']}"
            )
    if (shard.get("spec") or {}).get("usageDBConfig"):
        report.say(
            NOTE, "configuration", "usageDBConfig is not read: shares do not follow what was used before"
        )


# ---------------------------------------------------------------------- what is in the cluster


def _nodes(client: BlockingClient, report: Report) -> None:
    count = len(client.list(NODES, labels=NODE_POOL_KAI).items)
    if count:
        words = f"{count} nodes have the label {NODE_POOL_KAI}: this shard of KAI leaves them alone, Windlass does not"
        report.say(STOP, NODES.qualified, words)


def _queues(client: BlockingClient, report: Report) -> None:
    queues, groups = listed(client, KAI_QUEUES), listed(client, KAI_POD_GROUPS)
    for resource, items in ((KAI_QUEUES, queues), (KAI_POD_GROUPS, groups)):
        if items is None:
            report.say(STOP, resource.qualified, "the cluster has no such kind: KAI is not installed")
    if queues is None or groups is None:
        return
    for queue in map(decode_kai_queue, map(encode, queues)):
        for problem in queue.problems:
            report.say(NOTE, f"queue {queue.name}", str(problem))
    seen: Counter[str] = Counter()
    for group in map(decode_kai_pod_group, map(encode, groups)):
        seen[group.name] += 1
        for problem in kai_problems(group):
            report.say(NOTE, f"podgroup {group.key}", str(problem))
    twice = sorted(name for name, count in seen.items() if count > 1)
    if twice:
        words = f"{', '.join(twice)} in several namespaces: KAI tells them apart by their name alone"
        report.say(STOP, KAI_POD_GROUPS.qualified, words)
    report.queues = report.look()
    for row in report.queues:
        if row.staying:
            words = (
                f"{row.staying} gangs stay with KAI: they ask for parts of cards, or belong to another shard"
            )
            report.say(NOTE, f"queue {row.name}", words)
    staying = sum(row.staying for row in report.queues)
    if staying:
        report.against.append(
            f"{staying} gangs that stay with KAI: its binder reserves the cards that they share"
        )
