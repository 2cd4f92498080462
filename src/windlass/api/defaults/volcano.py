"""Defaults of Volcano's kinds: those of the CRD files, then those of Volcano's mutating webhooks.

Whatever a real cluster's API server fills in by the same CRD files comes first and alike; the rest
repeats ``pkg/webhooks/admission/*/mutate`` of Volcano, including that ``maxRetry: 0`` means 3 and
``minAvailable: 0`` the sum over the tasks.
"""

from __future__ import annotations

from typing import Any

from windlass.api.resources import (
    JOB_TEMPLATES,
    POD_GROUPS,
    QUEUES,
    VOLCANO_CRON_JOBS,
    VOLCANO_JOBS,
    Resource,
)
from windlass.api.wire import schema
from windlass.api.wire.schema import SchemaNode, Struct

DEFAULT_QUEUE = "default"
DEFAULT_SCHEDULER = "volcano"
DEFAULT_RETRIES = 3
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"
PLUGIN_NEEDS = {"tensorflow": ("svc",), "pytorch": ("svc",), "ray": ("svc",), "mpi": ("svc", "ssh")}
"""Plugin → the plugins that Volcano adds with it."""


def structural(resource: Resource, obj: dict[str, Any]) -> None:
    """The ``default``s of the CRD file, as a real API server applies them."""
    struct = schema.for_kind(resource.group, resource.version, resource.kind)
    if struct is not None:
        _fill(struct, obj)


def _fill(struct: Struct, value: dict[str, Any]) -> None:
    for name, node in struct.fields.items():
        if name not in value and node.default is not None:
            default = node.default
            value[name] = dict(default) if isinstance(default, dict) else default
        if name in value and not node.embedded and name != "metadata":
            _fill_value(node, value[name])


def _fill_value(node: SchemaNode, value: Any) -> None:
    if node.kind == "struct" and isinstance(value, dict):
        _fill(node.struct, value)  # type: ignore[arg-type]
    elif node.kind == "list" and isinstance(value, list):
        for item in value:
            _fill_value(node.item, item)  # type: ignore[arg-type]
    elif node.kind == "map" and isinstance(value, dict):
        for item in value.values():
            _fill_value(node.item, item)  # type: ignore[arg-type]


def queue(obj: dict[str, Any]) -> None:
    structural(QUEUES, obj)
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    for name, prefix in ((HIERARCHY, "root"), (HIERARCHY_WEIGHTS, "1")):
        path = annotations.get(name)
        if path and path != prefix and not path.startswith(f"{prefix}/"):
            annotations[name] = f"{prefix}/{path}"


def job_template(obj: dict[str, Any]) -> None:
    structural(JOB_TEMPLATES, obj)


def cron_job(obj: dict[str, Any]) -> None:
    structural(VOLCANO_CRON_JOBS, obj)


def pod_group(obj: dict[str, Any]) -> None:
    structural(POD_GROUPS, obj)


def job(obj: dict[str, Any]) -> None:
    structural(VOLCANO_JOBS, obj)
    spec = obj["spec"]
    spec["queue"] = spec.get("queue") or DEFAULT_QUEUE
    spec["schedulerName"] = spec.get("schedulerName") or DEFAULT_SCHEDULER
    spec["maxRetry"] = spec.get("maxRetry") or DEFAULT_RETRIES
    tasks = [task for task in spec.get("tasks") or () if isinstance(task, dict)]
    for index, task in enumerate(tasks):
        _task(index, task)
    if not spec.get("minAvailable"):
        spec["minAvailable"] = sum(task["minAvailable"] for task in tasks)
    plugins = spec.get("plugins")
    for plugin in list(plugins or ()):
        for needed in PLUGIN_NEEDS.get(plugin, ()):
            plugins.setdefault(needed, [])


def _task(index: int, task: dict[str, Any]) -> None:
    task["name"] = task.get("name") or f"default{index}"
    task["maxRetry"] = task.get("maxRetry") or DEFAULT_RETRIES
    if task.get("minAvailable") is None:
        partition = task.get("partitionPolicy") or {}
        minimum = partition.get("minPartitions") or 0
        task["minAvailable"] = minimum * (partition.get("partitionSize") or 0) or task.get("replicas", 0)
    template = task.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        spec = template["spec"]
        if spec.get("hostNetwork") and not spec.get("dnsPolicy"):
            spec["dnsPolicy"] = "ClusterFirstWithHostNet"
