"""Port of the master as the commands of a PyTorchJob's pods name it."""

from __future__ import annotations

import re

from windlass.jobs.kubeflow.job import KubeflowJob

_PORT = re.compile(r"--master[_-]port[= ](\d{1,5})(?!\d)")


def port_in_arguments(job: KubeflowJob) -> int | None:
    """Return the one port that ``--master_port`` of the job's commands names, or ``None``."""
    found: set[int] = set()
    for role in job.definition.roles:
        main = job.kind.fields.main_container(role.pod_spec)
        words = " ".join(str(word) for word in (*(main.get("command") or ()), *(main.get("args") or ())))
        found.update(int(port) for port in _PORT.findall(words))
    return found.pop() if len(found) == 1 else None
