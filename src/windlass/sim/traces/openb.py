"""OpenB (Weng et al., ATC 2023): pods of a production cluster, and its nodes.

Pods: ``name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,
scheduled_time``, seconds from the start; ``gpu_milli`` of each device; ``gpu_spec`` names models (``A|B``) and is
missing in some lists. A pod runs from ``scheduled_time`` to ``deletion_time``; one that was never scheduled has
no run time and is left out by :func:`read`. Nodes: ``sn,cpu_milli,memory_mib,gpu,model``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from windlass.sim.jobs import WHOLE, TraceJob
from windlass.sim.traces.rows import TraceError, TraceRow, rows

MIB = 1 << 20
MOST_OF_NODE = 999
"""No node has more GPUs, as in shapes (``1x999``)."""
COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "deletion_time", "scheduled_time")
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")


@dataclass(frozen=True, slots=True)
class OpenbNode:
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class OpenbPod:
    """``gpu_milli`` of each of ``gpus`` devices; ``gpu_models``: those that it takes, none for any."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    gpu_models: tuple[str, ...] = ()

    @property
    def demand(self) -> int:
        """Thousandths of devices in all."""
        return self.gpus * self.gpu_milli


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The pods that ran, as jobs by the time of their creation. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    found: list[TraceJob] = []
    for row in rows(lines, file, (*COLUMNS, *TIMES)):
        if not row.text("scheduled_time"):
            continue
        pod = _pod(row)
        begun, ended = row.number("scheduled_time"), row.number("deletion_time")
        if ended < begun:
            raise row.fail("deletion_time", "it is deleted before it is scheduled")
        found.append(
            TraceJob(
                id=pod.name,
                submit_seconds=row.number("creation_time"),
                duration_seconds=ended - begun,
                gpus=pod.gpus,
                gpu_milli=pod.gpu_milli if pod.gpus else WHOLE,
                cpu_milli=pod.cpu_milli,
                memory_bytes=pod.memory_mib * MIB,
                name=pod.name,
                gpu_models=pod.gpu_models,
            )
        )
    return found


def read_pods(lines: Iterable[str], file: str) -> list[OpenbPod]:
    """All pods, without times. Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    return [_pod(row) for row in rows(lines, file, COLUMNS)]


def read_nodes(lines: Iterable[str], file: str) -> list[OpenbNode]:
    """The nodes, one at least. Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    found = [_node(row) for row in rows(lines, file, NODE_COLUMNS)]
    if not found:
        raise TraceError(file, 0, "", "there is no node in it")
    return found


def _node(row: TraceRow) -> OpenbNode:
    gpus = row.whole("gpu")
    if gpus > MOST_OF_NODE:
        raise row.fail(
            "gpu", f"{row.text('gpu')!r} is more than the {MOST_OF_NODE} GPUs that a node may have"
        )
    return OpenbNode(row.text("sn"), row.whole("cpu_milli"), row.whole("memory_mib"), gpus, row.text("model"))


def _pod(row: TraceRow) -> OpenbPod:
    gpus, milli = row.gpus("num_gpu"), row.whole("gpu_milli", default=0)
    if milli > WHOLE or (gpus and not milli):
        raise row.fail("gpu_milli", f"{milli} is no part of a GPU: it is from 1 to {WHOLE} of each")
    return OpenbPod(
        row.text("name"),
        row.whole("cpu_milli"),
        row.whole("memory_mib"),
        gpus,
        milli,
        tuple(filter(None, row.text("gpu_spec").split("|"))),
    )
