"""A Volcano Job by itself: the rules of Volcano's webhook (``admit_job.go``), each with its remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windlass.api.validation import amounts, names, simple
from windlass.api.validation.collector import Collector
from windlass.api.validation.scheduling.pod_group import topology
from windlass.api.validation.workloads.job_template import job_template

EVENTS = (
    "*",
    "PodFailed",
    "PodEvicted",
    "PodPending",
    "Unknown",
    "TaskCompleted",
    "TaskFailed",
    "JobUpdated",
)
ACTIONS = (
    "AbortJob",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "TerminateJob",
    "CompleteJob",
    "ResumeJob",
)
INTERNAL_EVENTS = ("OutOfSync", "CommandIssued", "PodRunning")
"""Events of Volcano's controller that no policy may name."""
PLUGINS = ("env", "svc", "ssh", "pytorch", "mpi", "tensorflow", "ray", "hcclrank")
_FREE = ("minAvailable", "priorityClassName", "tasks")
_DURATION = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_POD_NAME_LIMIT = 63
Obj = Mapping[str, Any]


def job(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = obj.get("spec") or {}
    tasks = [task for task in spec.get("tasks") or () if isinstance(task, Mapping)]
    if not tasks:
        out.required("spec.tasks", "No task specified: a job needs at least one task with a pod template")
        return
    _counts(spec, tasks, out)
    seen: set[str] = set()
    name = (obj.get("metadata") or {}).get("name", "")
    for index, task in enumerate(tasks):
        _task(task, f"spec.tasks[{index}]", name, seen, out)
    policies(spec.get("policies") or (), "spec.policies", out)
    _plugins(spec, tasks, out)
    _volumes(spec.get("volumes") or (), out)
    _dependencies(tasks, out)
    topology(spec.get("networkTopology") or {}, "spec.networkTopology", out)
    for field in ("maxRetry", "ttlSecondsAfterFinished"):
        out.at_least(f"spec.{field}", spec.get(field))
    out.at_least("spec.minSuccess", spec.get("minSuccess"), 1)
    if spec.get("runningEstimate"):
        _duration(spec["runningEstimate"], "spec.runningEstimate", out)
    if old is not None:
        _update(spec, old.get("spec") or {}, out)


def _counts(spec: Obj, tasks: list[Obj], out: Collector) -> None:
    minimum, pods = spec.get("minAvailable", 0), sum(task.get("replicas", 0) for task in tasks)
    out.at_least("spec.minAvailable", minimum)
    if minimum > pods:
        out.invalid(
            "spec.minAvailable",
            minimum,
            f"the tasks have {pods} replicas together, so the job could never start: lower minAvailable or raise "
            "the replicas",
        )


def _task(task: Obj, path: str, job_name: str, seen: set[str], out: Collector) -> None:
    name, replicas = task.get("name", ""), task.get("replicas", 0)
    out.each(f"{path}.name", name, names.dns_label(name))
    if name in seen:
        out.duplicate(f"{path}.name", name)
    seen.add(name)
    longest = f"{job_name}-{name}-{max(replicas - 1, 0)}"
    if len(longest) > _POD_NAME_LIMIT:
        out.invalid(
            f"{path}.name",
            name,
            f"the pod name {longest} would have {len(longest)} characters, {_POD_NAME_LIMIT} are allowed (it is "
            "a host name): shorten the job's or the task's name",
        )
    out.at_least(f"{path}.replicas", replicas)
    minimum = task.get("minAvailable", 0)
    out.at_least(f"{path}.minAvailable", minimum)
    if minimum > replicas:
        out.invalid(
            f"{path}.minAvailable",
            minimum,
            f"it is above the task's replicas {replicas}: lower it or raise replicas",
        )
    out.at_least(f"{path}.maxRetry", task.get("maxRetry"))
    policies(task.get("policies") or (), f"{path}.policies", out)
    _partition(task, path, out)
    job_template(task.get("template"), f"{path}.template", "task", out)
    if task.get("topologyPolicy") not in (None, "", "none"):
        _whole_cpus(task, path, out)


def _whole_cpus(task: Obj, path: str, out: Collector) -> None:
    template = task.get("template")
    spec = (template.get("spec") if isinstance(template, Mapping) else None) or {}
    for index, container in enumerate(spec.get("containers") or ()):
        found = container.get("resources") or {}
        text = (found.get("requests") or {}).get("cpu", (found.get("limits") or {}).get("cpu"))
        value = amounts.parsed(text) if text is not None else None
        if value is not None and value.denominator != 1:
            out.invalid(
                f"{path}.template.spec.containers[{index}].resources.requests[cpu]",
                amounts.shown(text),
                f"topologyPolicy {task['topologyPolicy']} needs whole CPUs: round it up, or drop topologyPolicy",
            )


def _partition(task: Obj, path: str, out: Collector) -> None:
    policy = task.get("partitionPolicy")
    if not policy:
        return
    where = f"{path}.partitionPolicy"
    total, size = policy.get("totalPartitions", 0), policy.get("partitionSize", 0)
    least = policy.get("minPartitions", 0)
    for field, value in (("totalPartitions", total), ("partitionSize", size)):
        if value <= 0:
            out.invalid(f"{where}.{field}", value, "must be greater than 0")
    if total > 0 and size > 0 and task.get("replicas", 0) != total * size:
        out.invalid(
            f"{path}.replicas",
            task.get("replicas", 0),
            f"it must be totalPartitions * partitionSize = {total} * {size} = {total * size}",
        )
    if least < 0 or least > total:
        out.invalid(f"{where}.minPartitions", least, f"must be between 0 and totalPartitions {total}")
    elif least and task.get("minAvailable", 0) != least * size:
        out.invalid(
            f"{path}.minAvailable",
            task.get("minAvailable", 0),
            f"it must be minPartitions * partitionSize = {least} * {size} = {least * size}: set it so or leave it out",
        )
    topology(policy.get("networkTopology") or {}, f"{where}.networkTopology", out)


# --- policies -----------------------------------------------------------------------------------------


def policies(found: Any, path: str, out: Collector) -> None:
    events: set[str] = set()
    codes: set[int] = set()
    for index, policy in enumerate(found):
        where = f"{path}[{index}]"
        named = [policy["event"]] if policy.get("event") else []
        named += policy.get("events") or []
        code = policy.get("exitCode")
        out.choice(f"{where}.action", policy.get("action", ""), ACTIONS)
        if named and code is not None:
            out.invalid(where, code, "an event and an exitCode are given: a policy has one or the other")
            continue
        if not named and code is None:
            out.required(where, "either event, events or exitCode says when the action is taken")
            continue
        if code is not None:
            _exit_code(code, f"{where}.exitCode", codes, out)
        _events(named, where, events, out)
        if policy.get("timeout"):
            _duration(policy["timeout"], f"{where}.timeout", out)
    if "*" in events and len(events) > 1:
        out.invalid(
            path, "*", '"*" is any event, so no other event may be listed with it: keep one or the other'
        )


def _exit_code(code: int, where: str, seen: set[int], out: Collector) -> None:
    if code == 0:
        out.invalid(where, code, "0 is success and no error code: use event TaskCompleted")
    if code in seen:
        out.duplicate(where, code)
    seen.add(code)


def _events(named: list[str], where: str, seen: set[str], out: Collector) -> None:
    for event in named:
        if event in INTERNAL_EVENTS:
            out.invalid(f"{where}.event", event, f"it is internal to Volcano: use one of {', '.join(EVENTS)}")
        elif event not in EVENTS:
            out.choice(f"{where}.event", event, EVENTS)
        elif event in seen:
            out.duplicate(f"{where}.event", event)
        seen.add(event)


def _duration(text: Any, where: str, out: Collector) -> None:
    if not isinstance(text, str) or not re.fullmatch(f"({_DURATION.pattern})+", text):
        out.invalid(where, text, "it is no duration: write it like 90s, 30m or 2h")


# --- plugins, volumes, dependencies, updates ----------------------------------------------------------


def _plugins(spec: Obj, tasks: list[Obj], out: Collector) -> None:
    plugins = spec.get("plugins") or {}
    for name in plugins:
        if name not in PLUGINS:
            out.choice(f"spec.plugins[{name}]", name, PLUGINS)
    known = [task.get("name", "") for task in tasks]
    for plugin, role in (("mpi", "master"), ("ray", "head")):
        if plugin not in plugins:
            continue
        name = _argument(plugins[plugin] or (), role, role)
        if name not in known:
            out.invalid(
                f"spec.plugins[{plugin}]",
                name,
                f"the {plugin} plugin's {role} task is missing: name a task {name}, or pass --{role} (tasks: "
                f"{', '.join(known)})",
            )


def _argument(arguments: Any, name: str, default: str) -> str:
    words = [str(word) for word in arguments]
    for index, word in enumerate(words):
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
        if word == f"--{name}" and index + 1 < len(words):
            return words[index + 1]
    return default


def _volumes(found: Any, out: Collector) -> None:
    seen: set[str] = set()
    for index, volume in enumerate(found):
        where = f"spec.volumes[{index}]"
        path, name, claim = (
            volume.get("mountPath", ""),
            volume.get("volumeClaimName"),
            volume.get("volumeClaim"),
        )
        if not path:
            out.required(f"{where}.mountPath")
        elif path in seen:
            out.duplicate(f"{where}.mountPath", path)
        seen.add(path)
        if name and claim:
            out.invalid(where, name, "volumeClaimName and volumeClaim are both given: keep one of the two")
        elif not name and not claim:
            out.required(where, "volumeClaimName (an existing claim) or volumeClaim (one to be made)")
        elif name:
            out.each(f"{where}.volumeClaimName", name, names.dns_subdomain(name))
        elif isinstance(claim, Mapping):
            simple.claim_spec(claim, f"{where}.volumeClaim", out)


def _dependencies(tasks: list[Obj], out: Collector) -> None:
    known: dict[str, set[str]] = {}
    for task in tasks:
        known[task.get("name", "")] = set((task.get("dependsOn") or {}).get("name") or ())
    for index, task in enumerate(tasks):
        for at, other in enumerate((task.get("dependsOn") or {}).get("name") or ()):
            where = f"spec.tasks[{index}].dependsOn.name[{at}]"
            if other not in known:
                out.choice(where, other, sorted(known))
            elif other == task.get("name"):
                out.invalid(where, other, "a task cannot depend on itself")
    found = circle(known)
    if found:
        out.invalid(
            "spec.tasks",
            " -> ".join(found),
            "these tasks wait for one another: remove one of the dependencies",
        )


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    """Return a cycle of dependencies, its first name again at the end; empty if there is none."""
    done: set[str] = set()
    for start in edges:
        trail: list[str] = []
        stack = [(start, iter(sorted(edges[start])))]
        trail.append(start)
        while stack:
            at, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                done.add(at)
                stack.pop()
                trail.pop()
            elif following in trail and following != at:
                return [*trail[trail.index(following) :], following]
            elif following in edges and following not in done and following != at:
                stack.append((following, iter(sorted(edges[following]))))
                trail.append(following)
    return []


def _update(spec: Obj, old: Obj, out: Collector) -> None:
    """Only counts and the priority class may change after the job was made."""
    for field in sorted({*spec, *old}):
        if field not in _FREE and (spec.get(field) or None) != (old.get(field) or None):
            out.forbidden(
                f"spec.{field}",
                "job updates may not change fields other than `minAvailable`, `tasks[*].replicas`, "
                "`tasks[*].minAvailable` and `priorityClassName`: delete the job and recreate it",
            )
    new_tasks, old_tasks = spec.get("tasks") or [], old.get("tasks") or []
    if [t.get("name") for t in new_tasks] != [t.get("name") for t in old_tasks]:
        out.forbidden("spec.tasks", "job updates may not add or remove tasks: delete the job and recreate it")
        return
    for index, (new, before) in enumerate(zip(new_tasks, old_tasks, strict=True)):
        for field in sorted({*new, *before} - {"replicas", "minAvailable"}):
            if (new.get(field) or None) != (before.get(field) or None):
                out.forbidden(
                    f"spec.tasks[{index}].{field}",
                    "job updates may only change `replicas` and `minAvailable` of a task: delete the job and "
                    "recreate it",
                )
