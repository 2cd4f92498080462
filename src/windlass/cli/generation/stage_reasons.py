"""Stages of a generation job that wait: for rows, for a time, or for GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.fields.stages import GPU_STAGE, normal_stages, rows_to_start
from windlass.api.resources import AIGC_JOBS, POD_GROUPS
from windlass.cli import resources
from windlass.cli.errors import WindlassError, if_served, remedy_with_target
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job
from windlass.cli.jobs.reasons import short_names
from windlass.cli.output.formats import emit
from windlass.cli.tables import pairs
from windlass.cli.text import plural
from windlass.jobs.aigc.stages import RESERVED_PHASE, stage_template

Object = Mapping[str, Any]
_WAITING_FOR_GPU = "WaitingForGPU"
_WAITING = ("Waiting", "Released", RESERVED_PHASE, _WAITING_FOR_GPU)


@dataclass(frozen=True, slots=True)
class WaitingStage:
    """Stage that waits. ``group``: its PodGroup, if the job's own explanation does not cover it."""

    name: str
    phase: str
    message: str
    group: str

    def record(self) -> dict[str, str]:
        found = {"stage": self.name, "phase": self.phase, "message": self.message}
        return found | {"podGroup": self.group} if self.group else found


def waiting_stages(invocation: Invocation, job: Job) -> list[WaitingStage]:
    """Return the stages of an AIGCJob that wait; none of other and of finished jobs."""
    if job.resource is not AIGC_JOBS or job.finished:
        return []
    return [stage for stage in _stages(invocation, job) if stage.phase in _WAITING]


def rows(invocation: Invocation, found: list[WaitingStage]) -> list[tuple[str, str]]:
    """Return the lines about waiting stages, with the command that says more."""
    lines = []
    for stage in found:
        lines.append(f"{stage.name} is {stage.phase}. {stage.message}")
        if stage.group:
            lines.append(_command(invocation, stage.group))
    return [("stages", "\n".join(lines))]


def _command(invocation: Invocation, name: str) -> str:
    command = f"windlass explain {name}"
    return f"more: {remedy_with_target(command, invocation.context.target_flags)}"


def explain_stage(invocation: Invocation, name: str, error: WindlassError) -> None:
    """Explain a stage that has no PodGroup now, named ``JOB-STAGE``.

    Raises ``error`` if there is no such stage.
    """
    space, slash, rest = name.rpartition("/")
    namespace, client = space if slash else invocation.home_namespace, invocation.client
    for at in [index for index, letter in enumerate(rest) if letter == "-"]:
        obj = if_served(lambda job=rest[:at]: client.find(AIGC_JOBS, job, namespace), None)
        if obj is None:
            continue
        job = Job(AIGC_JOBS.kind, obj)
        stage = next((one for one in _stages(invocation, job) if one.name == rest[at + 1 :]), None)
        if stage is not None:
            _show(invocation, job, stage)
            return
    raise error


def _show(invocation: Invocation, job: Job, stage: WaitingStage) -> None:
    if invocation.structured:
        document = {"job": job.name, "namespace": job.namespace, "kind": job.kind, **stage.record()}
        emit(invocation, document, names=[f"job/{job.name}"])
        return
    invocation.out.line(f"{job.name}-{stage.name} (stage {stage.name} of AIGCJob {job.name}): {stage.phase}")
    facts = [("why", stage.message), ("job", f"{job.state}, {_command(invocation, job.name)}")]
    invocation.out.write(pairs(facts, indent="  "))


def _stages(invocation: Invocation, job: Job) -> Iterator[WaitingStage]:
    status = job.obj.get("status") or {}
    known = {one.get("name"): one for one in status.get("stages") or ()}
    for index, stage in enumerate(normal_stages(job.obj.get("spec") or {})):
        seen = known.get(stage["name"]) or {}
        phase = str(seen.get("phase") or status.get("phase") or "Pending")
        own = "-cpu" if seen.get("onCPU") else ""
        group = f"{job.name}-{stage['name']}{own}" if index or own else ""
        if phase not in (RESERVED_PHASE, _WAITING_FOR_GPU):
            yield WaitingStage(stage["name"], phase, _before_gpus(job.obj, index, stage, seen, phase), "")
        else:
            message = _with_group(invocation, job, group, stage, seen, phase)
            yield WaitingStage(stage["name"], phase, message, group)


def _with_group(invocation: Invocation, job: Job, group: str, stage: Object, seen: Object, phase: str) -> str:
    """Return why a stage with a reservation or a request for GPUs waits, in the scheduler's words."""
    found = invocation.client.find(POD_GROUPS, group, job.namespace) if group else None
    record = Job("PodGroup", found, group=found, seen=job.seen).explanation if found is not None else None
    gpus = _gpus(stage, int(seen.get("desired") or 0))
    if phase == _WAITING_FOR_GPU:
        return f"It asks for {gpus}. {short_names(record.message) if record is not None else ''}".rstrip()
    text = f"It holds no GPU. {_upper(gpus)} {_be(gpus)} expected to be needed at {seen.get('expectedAt')}."
    return f"{text} {short_names(record.message)}" if record is not None else text


def _before_gpus(obj: Object, index: int, stage: Object, seen: Object, phase: str) -> str:
    """Return for what a stage waits before it asks for workers."""
    if phase == "Succeeded":
        return "All rows have left this stage."
    if phase not in ("Waiting", "Released"):
        return "Its workers belong to the PodGroup of the job." if not index else "It has no PodGroup yet."
    if stage["kind"] != GPU_STAGE:
        return "It starts with the first row that reaches it."
    before = [one["name"] for one in normal_stages(obj.get("spec") or {})][:index]
    text = "It asks for no GPU now."
    if seen.get("expiredAt"):
        text = f"Its reservation expired at {seen['expiredAt']}. {text}"
    elif seen.get("releasedAt"):
        text = f"It gave its GPUs back at {seen['releasedAt']}. {text}"
    elif seen.get("requeuedAt"):
        return f"It found no GPU, and gave up its place at {seen['requeuedAt']} for a minute. {text}"
    gpus = _gpus(stage, stage["parallelism"]["min"])
    if not before:
        return f"{text} It asks for {gpus} once the rows are read."
    items = (obj.get("status") or {}).get("items") or {}
    ready = int(seen.get("waiting") or 0) + int(seen.get("inFlight") or 0)
    if not items.get("total"):
        return f"{text} It asks for {gpus} once the rows are read and enough wait for it (startWhen)."
    enough = -(-rows_to_start(obj["spec"], index, int(items["total"])) // 1)
    return (
        f"{text} It asks for {gpus} once {plural(int(enough), 'row')} wait for it "
        f"(spec.progressive.startWhen), or once stage {before[-1]} has ended. Now {ready} wait."
    )


def _gpus(stage: Object, workers: int) -> str:
    text = resources.request_text([(stage_template(stage), max(1, workers))])
    return "no GPU" if text == "-" else "1 GPU" if text == "1" else f"{text} GPUs"


def _be(gpus: str) -> str:
    return "is" if gpus == "1 GPU" else "are"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
