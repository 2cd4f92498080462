"""Translation of ``--elastic MIN:MAX`` to a PyTorchJob."""

from __future__ import annotations

import re
from typing import Any

from windlass.api.errors import WindlassError
from windlass.api.resources import PYTORCH_JOBS

MAX_RESTARTS = 10
"""Restarts of the processes of one rank by ``torchrun``, and of its pod."""
_RANGE = re.compile(r"(\d{1,5}):(\d{1,5})")


def elastic_range(text: str, nodes: int, command_line: str) -> tuple[int, int] | None:
    """Return the bounds of ``--elastic``; ``None`` without it. Raises :class:`WindlassError`.

    ``nodes``: value of ``--nodes``.
    """
    if not text:
        return None
    match = _RANGE.fullmatch(text)
    least, largest = (int(match[1]), int(match[2])) if match is not None else (0, 0)
    if not 1 <= least <= largest:
        raise WindlassError(
            "WL-USE-400",
            f"--elastic {text} is not a range of ranks",
            evidence="the format is MIN:MAX with 1 <= MIN <= MAX",
            remedies=(f"{command_line} --elastic 2:8 -- torchrun train.py",),
        )
    if nodes > 1:
        raise WindlassError(
            "WL-USE-400",
            "--elastic and --nodes are both given",
            evidence="--elastic already states how many ranks there are",
            remedies=(f"{command_line} --elastic {text} -- …   (without --nodes)",),
        )
    return least, largest


def elastic_job(job: dict[str, Any], bounds: tuple[int, int]) -> dict[str, Any]:
    """Return the PyTorchJob of a Volcano Job with one rank.

    The program starts under ``torchrun``, which reads the bounds and the rendezvous from
    its environment.
    """
    spec = job["spec"]
    template = spec["tasks"][0]["template"]
    pod = dict(template["spec"])
    pod.pop("restartPolicy", None)
    pod["containers"] = [{**pod["containers"][0], "name": "pytorch"}]
    pod["schedulerName"] = spec["schedulerName"]
    run: dict[str, Any] = {
        "cleanPodPolicy": "Running",
        "backoffLimit": MAX_RESTARTS,
        "schedulingPolicy": {"queue": spec["queue"]},
    }
    if deadline := pod.pop("activeDeadlineSeconds", None):
        run["activeDeadlineSeconds"] = deadline
    if priority := spec.get("priorityClassName"):
        run["schedulingPolicy"]["priorityClass"] = priority
    least, largest = bounds
    return {
        "apiVersion": PYTORCH_JOBS.api_version,
        "kind": PYTORCH_JOBS.kind,
        "metadata": job["metadata"],
        "spec": {
            "runPolicy": run,
            "elasticPolicy": {"minReplicas": least, "maxReplicas": largest, "maxRestarts": MAX_RESTARTS},
            "pytorchReplicaSpecs": {
                "Worker": {
                    "replicas": largest,
                    "restartPolicy": "OnFailure",
                    "template": {**template, "spec": pod},
                }
            },
        },
    }
