"""Pod that removes the outputs of a job with ``outputs.retain: false`` before the job is deleted. Pure."""

from __future__ import annotations

from typing import Any

from windlass.api.fields import aigc
from windlass.jobs.aigc.job import AigcJob
from windlass.jobs.aigc.pods import BatchPlatform, build_pod, outputs_file
from windlass.jobs.aigc.storage import needs_claim

REMOVAL = "removal"
"""Role of the pod."""
LIMIT_SECONDS = 600.0
"""Time after which a job is deleted although its outputs could not be removed (seconds)."""


def removes_outputs(job: AigcJob, platform: BatchPlatform) -> bool:
    """Return whether files are to be removed. A claim that the job made is deleted with it instead."""
    if aigc.part(job.spec, "outputs").get("retain") is not False:
        return False
    return bool(outputs_file(job, platform)) and not (platform.claim is not None and needs_claim(job))


def build_removal(job: AigcJob, scheduler: str, platform: BatchPlatform, node: str) -> dict[str, Any]:
    """Return the pod. ``node``: where the driver ran; files of a node are removed there."""
    pod = build_pod(job, job.driver, 0, scheduler, platform, 1)
    pod["metadata"]["name"] = f"{job.definition.name}-{REMOVAL}"
    pod["metadata"]["labels"] |= {aigc.ROLE: REMOVAL}
    body = pod["spec"]
    (container,) = body["containers"]
    container["command"] = [platform.python, "-m", "windlass.items.driver.removal"]
    container.pop("ports")
    body["activeDeadlineSeconds"] = int(LIMIT_SECONDS)
    if node and any("hostPath" in volume for volume in body["volumes"]):
        body["nodeName"] = node
    return pod
