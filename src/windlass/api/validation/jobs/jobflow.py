"""JobFlows and JobTemplates of ``flow.volcano.sh``: the rules of Volcano's webhook, each with its remedy.

A JobTemplate is checked like the jobs that are created from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windlass.api.defaults import volcano as defaults
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.jobs import vcjob
from windlass.api.wire import patch_types

Obj = Mapping[str, Any]
_POD_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


def job_flow(obj: Obj, old: Obj | None, out: Collector) -> None:
    flows = part(obj, "spec").get("flows") or []
    known = [flow.get("name", "") for flow in flows]
    edges: dict[str, set[str]] = {}
    for at, flow in enumerate(flows):
        path, name = f"spec.flows[{at}]", known[at]
        out.each(f"{path}.name", name, names.dns_subdomain(name))
        if name in edges:
            out.duplicate(f"{path}.name", name)
        depends = part(flow, "dependsOn")
        targets = depends.get("targets") or []
        edges[name] = set(targets)
        for index, target in enumerate(targets):
            where = f"{path}.dependsOn.targets[{index}]"
            if target not in known:
                out.choice(where, target, known)
            elif target == name:
                out.invalid(where, target, "a job cannot depend on itself")
        _probe(part(depends, "probe"), bool(targets), f"{path}.dependsOn.probe", out)
    circle = vcjob.circle(edges)
    if circle:
        out.invalid(
            "spec.flows",
            " -> ".join(circle),
            "these jobs wait for one another: remove one of the dependencies",
        )


def _probe(probe: Obj, has_targets: bool, path: str, out: Collector) -> None:
    if not probe:
        return
    if not has_targets:
        out.required(path.replace("probe", "targets"), "the jobs with the pods that are probed")
    for field in ("httpGetList", "tcpSocketList", "taskStatusList"):
        for at, entry in enumerate(probe.get(field) or ()):
            where = f"{path}.{field}[{at}]"
            if not entry.get("taskName"):
                out.required(f"{where}.taskName", "a task of a target")
            if field != "taskStatusList" and not entry.get("port"):
                out.required(f"{where}.port", "a port from 1 to 65535")
            if field == "taskStatusList":
                out.choice(f"{where}.phase", entry.get("phase", ""), _POD_PHASES)


def job_template(obj: Obj, old: Obj | None, out: Collector) -> None:
    as_job(part(obj, "metadata").get("name", ""), part(obj, "spec"), "spec", out)


def as_job(name: str, spec: Obj, path: str, out: Collector) -> None:
    """Check the spec of a job that will be created. ``path``: where the spec is."""
    job: dict[str, Any] = {"metadata": {"name": name}, "spec": patch_types.copy(dict(spec))}
    defaults.job(job)
    found = Collector()
    vcjob.job(job, None, found)
    for error in found.errors:
        out.add(replace(error, field=path + error.field.removeprefix("spec")))
