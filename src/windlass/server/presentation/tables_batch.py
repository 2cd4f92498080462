"""Tables of ``batch/v1``: Job and CronJob, with the columns of kube-apiserver."""

from __future__ import annotations

from typing import Any

from windlass.kits import timestamps
from windlass.server.presentation.tables_common import (
    AGE,
    NAME,
    NONE,
    Obj,
    TableColumn,
    TableOf,
    age_of,
    condition,
    name_of,
    selector_text,
    since,
)

_WIDE = (
    TableColumn("Containers", wide=True, description="Names of each container in the template."),
    TableColumn("Images", wide=True, description="Images referenced by each container in the template."),
    TableColumn(
        "Selector", wide=True, description="A label query over pods that should match the pod count."
    ),
)
_STATES = ("Complete", "Failed", "", "Suspended", "FailureTarget", "SuccessCriteriaMet")


def _job(obj: Obj, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [
        name_of(obj),
        _state(obj),
        _completions(spec, int(status.get("succeeded") or 0)),
        _duration(status, now),
        age_of(obj, now),
        *_containers(spec.get("template") or {}, spec.get("selector")),
    ]


def _state(obj: Obj) -> str:
    for kind in _STATES:
        if not kind:
            if (obj.get("metadata") or {}).get("deletionTimestamp"):
                return "Terminating"
        elif (condition(obj, kind) or {}).get("status") == "True":
            return kind
    return "Running"


def _completions(spec: Obj, succeeded: int) -> str:
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = int(spec.get("parallelism") or 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(status: Obj, now: float) -> str:
    started, ended = status.get("startTime"), status.get("completionTime")
    if not started:
        return ""
    end = timestamps.parse_rfc3339(ended) if ended else now
    return timestamps.age(end - timestamps.parse_rfc3339(started))


def _containers(template: Obj, selector: Obj | None) -> list[Any]:
    containers = (template.get("spec") or {}).get("containers") or ()
    return [
        ",".join(str(container.get("name", "")) for container in containers),
        ",".join(str(container.get("image", "")) for container in containers),
        selector_text((selector or {}).get("matchLabels")),
    ]


JOBS = TableOf(
    (
        NAME,
        TableColumn("Status", description="Status of the job."),
        TableColumn("Completions", description="The number of pods which reached phase Succeeded."),
        TableColumn("Duration", description="Time required to complete the job."),
        AGE,
        *_WIDE,
    ),
    _job,
)


def _cron_job(obj: Obj, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    template = spec.get("jobTemplate") or {}
    body = template.get("spec") or {}
    last = status.get("lastScheduleTime")
    return [
        name_of(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(status.get("active") or ()),
        since(last, now) if last else NONE,
        age_of(obj, now),
        *_containers(body.get("template") or {}, body.get("selector")),
    ]


CRON_JOBS = TableOf(
    (
        NAME,
        TableColumn(
            "Schedule", description="The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron."
        ),
        TableColumn("Timezone", description="The time zone name for the given schedule."),
        TableColumn("Suspend", "boolean", description="Whether subsequent executions are suspended."),
        TableColumn("Active", "integer", description="The number of currently running jobs."),
        TableColumn("Last Schedule", description="When the job was last successfully scheduled."),
        AGE,
        *_WIDE,
    ),
    _cron_job,
)
