"""Metrics for the scaling of an AIGCJob: from its rows, its GPUs, its queue, and from users. Pure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.annotations import DEVICE_UTILIZATION, SIMULATED, SIMULATED_UTILIZATION
from windlass.api.fields import aigc
from windlass.api.nodes.spot_labels import is_spot
from windlass.jobs.aigc.autoscale import PENDING_ITEMS
from windlass.kits.timestamps import parse_rfc3339
from windlass.scaling.measurement import Measurement
from windlass.scaling.rules import PENDING_JOBS, UTILISATION

Json = Mapping[str, Any]
_WAITING = ("", "Pending", "Queued", "WaitingForGPU")
MEASURED = (UTILISATION, PENDING_JOBS, PENDING_ITEMS, "workers", "workersRunning")
"""Metrics that every job has, with a value or without."""
_SETTLED = ("done", "deadLetter")
SIMULATED_DRIVER = "simulated"
DRIVER_VERSION = "nvidia.com/gpu.driver.version"
FED = "annotation " + aigc.METRICS


@dataclass(frozen=True, slots=True)
class WorkerOnNode:
    """Pod of a worker. ``labels``, ``notes``: of its node; empty without one. ``annotations``: its own.

    ``worker``: number of its worker, which has ``shards`` pods.
    """

    name: str
    namespace: str
    running: bool
    node: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    notes: Mapping[str, str]
    worker: str = ""
    shards: int = 1

    @property
    def simulated(self) -> bool:
        """Return whether its GPUs are simulated."""
        return self.labels.get(SIMULATED) == "true" or self.labels.get(DRIVER_VERSION) == SIMULATED_DRIVER

    @property
    def spot(self) -> bool:
        return is_spot(self.labels)


def whole(pods: Iterable[WorkerOnNode]) -> int:
    """Return the number of workers of which all pods are among these."""
    listed = tuple(pods)
    counts = Counter(pod.worker for pod in listed)
    sizes = {pod.worker: pod.shards for pod in listed}
    return sum(count // sizes[worker] for worker, count in counts.items())


def measure(
    obj: Json,
    workers: Sequence[WorkerOnNode],
    gpus: int,
    batch: Json | None,
    problem: str,
    pending: int,
    now: float,
    queried: Iterable[Measurement] = (),
) -> list[Measurement]:
    """Return all metrics of a job.

    ``gpus``: of a worker. ``batch``: status of the driver; ``None``: not read, ``problem`` says why.
    ``pending``: other jobs of the queue that wait. ``queried``: metrics of Prometheus, which come
    before measured ones. Those of the annotation come before both.
    """
    queue = str((obj.get("spec") or {}).get("queue") or "default")
    found = {
        one.name: one
        for one in (
            _utilisation(workers, gpus, now),
            Measurement(PENDING_JOBS, float(pending), f"queue {queue}", now),
            *_of_rows(batch, problem, now),
            Measurement("workersRunning", float(whole(one for one in workers if one.running)), "pods", now),
        )
    }
    found |= {one.name: one for one in queried}
    found = {name: one.usable(now) for name, one in found.items()}
    found |= {one.name: one for one in fed(obj, now)}
    return list(found.values())


def _of_rows(batch: Json | None, problem: str, now: float) -> Iterator[Measurement]:
    items, latency = aigc.part(batch or {}, "items"), aigc.part(batch or {}, "latency")
    pending = None
    if items.get("total") and batch is not None:
        pending = float(int(items["total"]) - sum(int(items.get(name) or 0) for name in _SETTLED))
    if batch is not None and pending is None:
        problem = "the rows are being read"
    values = {
        PENDING_ITEMS: pending,
        "itemsPerSecond": items.get("perSecond"),
        "itemsInFlight": items.get("inFlight"),
        "etaSeconds": items.get("etaSeconds"),
        "latencyP50": latency.get("p50"),
        "latencyP95": latency.get("p95"),
    }
    for name, value in values.items():
        if value is not None or name == PENDING_ITEMS:
            yield Measurement(name, None if value is None else float(value), "driver", now, problem)


def _utilisation(workers: Sequence[WorkerOnNode], gpus: int, now: float) -> Measurement:
    """Return the mean over the workers that run. A worker without a value is left out and named."""
    running = [one for one in workers if one.running]
    if not gpus:
        return Measurement(UTILISATION, None, "GPUs", problem="the workers have no GPU")
    if not running:
        return Measurement(UTILISATION, None, "GPUs", problem="no worker runs")
    samples = [sample for one in running if (sample := _sample(one, now)) is not None]
    if not samples:
        return Measurement(UTILISATION, None, "GPUs", problem=_unmeasured(running))
    mean = sum(value for value, _ in samples) / len(samples)
    kind = "pods" if running[0].shards > 1 else "workers"
    source = f"GPUs of {len(samples)} of {len(workers)} {kind}"
    return Measurement(UTILISATION, round(mean, 4), source, min(at for _, at in samples))


def _sample(worker: WorkerOnNode, now: float) -> tuple[float, float] | None:
    """Return the utilisation of a worker's GPUs as a ratio, and its time."""
    if worker.simulated:
        text = worker.annotations.get(SIMULATED_UTILIZATION, "")
        value = _number(text)
        return None if value is None else (value / 100, now)
    try:
        record = json.loads(worker.notes.get(DEVICE_UTILIZATION) or "{}")
        value = _number(record["pods"][f"{worker.namespace}/{worker.name}"])
        return None if value is None else (value / 100, parse_rfc3339(record["at"]))
    except (ValueError, KeyError, TypeError):
        return None


def _unmeasured(running: Sequence[WorkerOnNode]) -> str:
    if all(one.simulated for one in running):
        return f"simulated GPUs have none, and no worker has the annotation {SIMULATED_UTILIZATION}"
    return f"no node reports it (annotation {DEVICE_UTILIZATION}, which Windlass' node agent writes)"


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def fed(obj: Json, now: float) -> Iterator[Measurement]:
    """Yield the metrics that a user or another program wrote into the annotation of the job.

    Without a time they hold until they are replaced, and are as old as the decision that saw them first.
    """
    given = fed_values(obj)
    known = aigc.part(aigc.part(aigc.part(obj, "status"), "scaling"), "fed")
    at = parse_time(known.get("at"), now) if known.get("values") == given else now
    stated = given.get("at")
    if stated is not None:
        at = parse_time(stated, 0.0)
    for name, value in given.items():
        if name != "at":
            number = _number(value)
            problem = "" if number is not None else f"{value!r} is not a number"
            found = Measurement(name, number, FED, at, problem)
            yield found if stated is None else found.usable(now)


def fed_values(obj: Json) -> dict[str, Any]:
    """Return the annotation's object; empty if there is none or it cannot be read."""
    text = aigc.part(aigc.part(obj, "metadata"), "annotations").get(aigc.METRICS)
    try:
        given = json.loads(text) if text else {}
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def parse_time(text: Any, otherwise: float) -> float:
    """Return a time in Unix seconds."""
    try:
        return parse_rfc3339(text) if isinstance(text, str) else otherwise
    except ValueError:
        return otherwise


def pending_jobs(jobs: Iterable[Json], own: str, queue: str) -> int:
    """Return how many other jobs of a queue wait for workers."""
    return sum(
        one["metadata"].get("uid") != own
        and str(aigc.part(one, "spec").get("queue") or "default") == queue
        and str(aigc.part(one, "status").get("phase") or "") in _WAITING
        and not aigc.part(aigc.part(one, "spec"), "policy").get("suspend")
        for one in jobs
    )
