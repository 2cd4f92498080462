"""Preflight of ``windlass install --adopt volcano`` in a cluster with Volcano.

Only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from windlass.api.resources import CONFIG_MAPS, DEPLOYMENTS, POD_GROUPS, QUEUES, Resource
from windlass.api.views import decode_pod_group, decode_queue, encode
from windlass.cli.install import adopt_common
from windlass.cli.install.adopt_common import (
    GOOD,
    NOTE,
    STOP,
    QueueRow,
    Report,
    Switch,
    container,
    flags,
    listed,
    title,
)
from windlass.client.blocking import BlockingClient
from windlass.model import scheduler_config
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.cluster.ownership import VOLCANO
from windlass.plugins import registry

Json = dict[str, Any]
SCHEDULER, CONTROLLERS = "volcano-scheduler", "volcano-controller"
DEFAULT_NAME = "volcano"
_BATCH, _FLOW = "batch.volcano.sh", "flow.volcano.sh"
ONLY_VOLCANO = (
    Resource(_BATCH, "v1alpha1", "cronjobs", "CronJob"),
    Resource(_FLOW, "v1alpha1", "jobflows", "JobFlow"),
    Resource(_FLOW, "v1alpha1", "jobtemplates", "JobTemplate"),
    Resource("training.volcano.sh", "v1alpha1", "hyperjobs", "HyperJob"),
)
"""Kinds of Volcano's controllers that those of Windlass do not handle yet."""


def preflight(client: BlockingClient) -> Report:
    """Return the report for an administrator.

    Raises ``StatusError`` and ``Unreachable``.
    """
    report = Report(VOLCANO, "Volcano", QUEUES, partial(queue_rows, client), names=(DEFAULT_NAME,))
    scheduler = _processes(client, report)
    if scheduler is not None:
        report.look = partial(queue_rows, client, report.names)
        report.configuration = _configuration(client, scheduler)
        _policy(report)
    _volcano_objects(client, report)
    _queues(client, report)
    return report


def queue_rows(client: BlockingClient, names: Sequence[str] = (DEFAULT_NAME,)) -> list[QueueRow]:
    """Return the queues by name with their contents, for pods of these scheduler names."""
    found = {group.key: group for group in adopt_common.decoded(client, POD_GROUPS, decode_pod_group)}
    return adopt_common.rows(
        adopt_common.decoded(client, QUEUES, decode_queue), found, adopt_common.pods_of(client, names)
    )


def label(deployment: Json) -> str:
    """Return the label ``app`` of the pods, by which Volcano's chart names its components."""
    template = deployment["spec"]["template"]["metadata"]
    return (template.get("labels") or {}).get("app", "")


# ---------------------------------------------------------------------- its processes and its policy


def _processes(client: BlockingClient, report: Report) -> Json | None:
    """Return the scheduler, if it runs here. The controllers are stopped before it."""
    parts = {label(deployment): deployment for deployment in client.list(DEPLOYMENTS).items}
    scheduler = parts.get(SCHEDULER)
    if scheduler is None:
        words = f"no Deployment has pods with the label app={SCHEDULER}: there is no scheduler to adopt"
        report.add(STOP, "volcano-scheduler", words)
        return None
    report.names = tuple(flags(scheduler, "--scheduler-name")) or (DEFAULT_NAME,)
    for deployment in filter(None, (parts.get(CONTROLLERS), scheduler)):
        report.switches.append(Switch(DEPLOYMENTS, deployment, ("spec", "replicas"), (deployment,)))
        report.add(GOOD, title(deployment), adopt_common.state_text(deployment))
    report.add(GOOD, "schedulerName", ", ".join(report.names))
    sharding = flags(scheduler, "--scheduler-sharding-mode")
    if sharding and sharding[0] != "none":
        words = f"sharding mode is {sharding[0]}: Windlass also uses the nodes of other shards"
        report.add(STOP, title(scheduler), words)
    return scheduler


def _configuration(client: BlockingClient, deployment: Json) -> str:
    """Return its policy from the ConfigMap that its pods mount; ``""`` for the built-in one."""
    paths = flags(deployment, "--scheduler-conf")
    if not paths:
        return ""
    path = PurePosixPath(paths[0])
    spec = deployment["spec"]["template"]["spec"]
    mounts = {
        m["name"]
        for m in container(deployment).get("volumeMounts") or ()
        if m["mountPath"] == str(path.parent)
    }
    for volume in spec.get("volumes") or ():
        if volume["name"] in mounts and "configMap" in volume:
            found = client.find(CONFIG_MAPS, volume["configMap"]["name"], deployment["metadata"]["namespace"])
            return ((found or {}).get("data") or {}).get(path.name, "")
    return ""


def _policy(report: Report) -> None:
    if not report.configuration:
        report.add(NOTE, "configuration", "none was found: Windlass starts with its own default policy")
        return
    try:
        parsed = scheduler_config.parse(report.configuration)
        warned: list[str] = []
        make_engine(parsed.config, warned.append)
    except (scheduler_config.ConfigError, registry.UnknownAction, ValueError) as error:
        report.add(STOP, "configuration", f"{error}; use another one with --config")
        return
    plugins = [plugin.name for tier in parsed.config.tiers for plugin in tier.plugins]
    report.add(
        GOOD, "configuration", f"actions {', '.join(parsed.config.actions)}; plugins {', '.join(plugins)}"
    )
    for words in dict.fromkeys((*parsed.notes, *warned)):
        report.add(NOTE, "configuration", words)


# ---------------------------------------------------------------------- what is in the cluster


def _volcano_objects(client: BlockingClient, report: Report) -> None:
    for resource in ONLY_VOLCANO:
        count = len(listed(client, resource) or ())
        if count:
            words = f"{count}: only Volcano's controllers handle them, so these controllers must stay"
            report.add(NOTE, resource.qualified, words)
            report.against.append(f"{count} {resource.qualified}, which only Volcano's controllers handle")


def _queues(client: BlockingClient, report: Report) -> None:
    views: tuple[tuple[Resource, Callable[[bytes], Any]], ...] = (
        (QUEUES, decode_queue),
        (POD_GROUPS, decode_pod_group),
    )
    for resource, decode in views:
        items = listed(client, resource)
        if items is None:
            report.add(
                STOP, resource.qualified, "the cluster does not have this kind: Volcano is not installed"
            )
            return
        for item in map(decode, map(encode, items)):
            for problem in item.problems:
                report.add(NOTE, f"{resource.singular} {getattr(item, 'key', item.name)}", str(problem))
    report.queues = report.look()
