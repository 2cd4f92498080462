"""Generation jobs that have no workers yet, as their driver has not read the rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windlass.api.fields import aigc
from windlass.api.reasons import Explanation, Reason
from windlass.api.resources import AIGC_JOBS
from windlass.cli.jobs.jobs import Job
from windlass.jobs.aigc.unstarted import field_to_correct

_MESSAGE = "It has no workers yet: they are created once the driver has read the rows."


def with_driver(job: Job, record: Explanation | None, *, local: bool) -> Explanation | None:
    """Return the explanation of a job, with what helps its driver if the workers wait for that.

    ``local``: the nodes are this machine, so that its files are those of the driver.
    """
    if job.resource is not AIGC_JOBS or record is None or record.code is not Reason.WAITING_FOR_MEMBERS:
        return record
    if any(_role(pod) != aigc.DRIVER.lower() for pod in job.pods):
        return record
    return replace(record, message=_MESSAGE, remedies=tuple(_remedies(job, local)))


def _role(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(aigc.ROLE) or "")


def _remedies(job: Job, local: bool) -> list[str]:
    found = []
    if field := field_to_correct(str((job.obj.get("status") or {}).get("message") or "")):
        found.append(f"Correct {field}, or create its folder on the node.")
    missing = _missing_input(job.obj) if local else ""
    if missing:
        found.append(f"Correct spec.input.path: there is no {missing}.")
    if found:
        name = job.name if job.namespace == "default" else f"{job.name} -n {job.namespace}"
        found.append(
            f"Fields are changed while the job is suspended: windlass suspend {name}, "
            f"kubectl edit aigcjob {name}, windlass resume {name}."
        )
    return found


def _missing_input(obj: Mapping[str, Any]) -> str:
    """Return the path of the input if it does not exist on this machine."""
    given = aigc.part(aigc.part(obj, "spec"), "input")
    path = str(given.get("path") or "")
    if not path.startswith("/") or given.get("source", "file") != "file":
        return ""
    try:
        os.stat(path)
    except FileNotFoundError:
        return path
    except OSError:
        return ""
    return ""
