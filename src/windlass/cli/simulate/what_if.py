"""Input and output of ``windlass what-if``: jobs of a cluster that start earlier or later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Any

from windlass.api.errors import WindlassError
from windlass.api.quantities import QuantityError
from windlass.cli import tables
from windlass.cli.errors import missing, nearest
from windlass.cli.invocation import Invocation
from windlass.cli.output.progress import progress
from windlass.cli.queues.limit_checks import check_limits
from windlass.cli.simulate import plan
from windlass.cli.simulate.policy_columns import reject_directory
from windlass.cli.simulate.restarting_gangs import jobs_of, restarts
from windlass.cli.simulate.sim_record import history_of, learned_config_map
from windlass.cli.text import approximate_duration, natural_key, plural
from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.engine.timesharing import counts_text
from windlass.kits import durations
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.cluster.run_time_traits import shapes_in
from windlass.model.cluster.task_builder import OF_NODES
from windlass.model.groups.podgroups import job_title
from windlass.model.pods.device_exclusion import exclusive_rules
from windlass.model.queues.engine_queue import shown
from windlass.predict.history import History
from windlass.scheduler import configuration
from windlass.scheduler.estimates.run_times import learns
from windlass.scheduler.estimates.time_share_counts import KEY as COUNTS
from windlass.sim.replay.policies import KAI, VOLCANO
from windlass.sim.whatif import changes
from windlass.sim.whatif.compare import Band, Comparison, Draws, Shift, SimulatedCluster, compare, kind_of
from windlass.sim.whatif.play_forward import OVER, RUNS, ForwardState, state_of
from windlass.sim.whatif.run_times import SampledRunTimes, learn
from windlass.spi.configuration import BACKFILLS, SchedulerConfig, foreign_queue
from windlass.spi.objects import Task
from windlass.spi.quantities import is_device

NAMED = {"default": "", "volcano-like": VOLCANO, "kai-like": KAI} | {
    name: f"configurations:\n- name: backfill\n  arguments:\n    reservations: {name}\n" for name in BACKFILLS
}
"""Configurations that ``--policy`` knows by name."""
QUIET = EngineConfig(reports=False)
MAX_SHOWN_JOBS = 20
STOPPED = 0.5
"""Part of the samples above which a job counts as stopped."""


@dataclass(frozen=True, slots=True)
class WhatIfQuestion:
    """Options of the command.

    ``now``: Unix seconds. ``files``, ``config``: as for ``windlass plan``. ``policy``:
    another configuration, a name of :data:`NAMED` or a file. ``run_time``: assumed for
    jobs with an unknown run time. ``horizon``: maximum time that is simulated.
    """

    now: float
    files: Sequence[str] = ()
    config: str = ""
    drain: Sequence[str] = ()
    add: Sequence[str] = ()
    quota: Sequence[str] = ()
    policy: str = ""
    remove: Sequence[str] = ()
    samples: int = 20
    seed: int = 0
    run_time: str = ""
    horizon: str = "720h"


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """Result. ``said``: texts of the changes. ``both``: both APIs have queues."""

    said: Sequence[str]
    comparison: Comparison
    both: bool
    running: KnownEnds
    waiting: KnownEnds
    others: ForeignPods


@dataclass(slots=True)
class KnownEnds:
    """Number of groups, and number of them without a known end."""

    count: int = 0
    unknown: int = 0


def answer(invocation: Invocation, question: WhatIfQuestion) -> WhatIfAnswer:
    """Simulate both clusters.

    Raises :class:`WindlassError`, ``StatusError`` and ``Unreachable``.
    """
    requested = _changes(question)
    unknown = _seconds("--run-time", question.run_time) if question.run_time else None
    horizon = _seconds("--horizon", question.horizon)
    now = question.now
    request = plan.PlanRequest(question.files, question.config, now)
    embedded = not invocation.target.remote
    if question.files:
        loaded = plan.load_files(request, invocation.warn)
    else:
        loaded = plan.load_live(invocation.client, request, invocation.warn, embedded=embedded)
    loaded.model.withhold(plan.quotas_of(loaded.counted).withheld)
    stored = None if question.files else learned_config_map(invocation.client, embedded)
    jobs = loaded.counted.jobs if question.files else jobs_of(invocation.client, invocation.warn)
    counts = ((stored or {}).get("data") or {}).get(COUNTS)
    before = _simulated_cluster(loaded, loaded.parsed.config, now, counts)
    shapes = shapes_in(loaded.model.groups, before.state.groups)
    run_times = SampledRunTimes(_history(loaded, question, stored), unknown, shapes)
    after = before
    if question.policy:
        after = _simulated_cluster(loaded, _policy(question.policy, invocation.warn), now, counts)
    for state in (before.state, after.state):
        state.groups.update({key: run_times.predicted_group(group) for key, group in state.groups.items()})
        state.restarts |= restarts(jobs)
    after = SimulatedCluster(after.state.copy(), after.engine) if question.policy else before.changing()
    for change in requested:
        _apply(change, after.state)
    check_limits(before.state.queues, after.state.queues)
    _remove_node_pods(loaded.model, before.state, after.state)
    for text in question.add:
        for shape in changes.unlike(before.state, text):
            invocation.warn(
                f"no node resembles {shape}: the added nodes have no labels, and unlimited CPU and memory"
            )
    draws = Draws(run_times, question.samples, question.seed, horizon)
    with progress(invocation, "what-if", question.samples) as tell:
        comparison = compare(before, after, draws, tell)
    texts = [change.said for change in requested]
    texts += [f"with policy {question.policy}"] if question.policy else []
    others = foreign_pods(before.state, after.state)
    return WhatIfAnswer(
        texts, comparison, loaded.model.objects.both_apis(), *_ends(before.state, run_times), others
    )


def _changes(question: WhatIfQuestion) -> list[changes.ClusterChange]:
    makers: Sequence[tuple[Iterable[str], Callable[[str], changes.ClusterChange]]] = (
        (question.add, changes.add),  # first, so that removed nodes can serve as models
        (question.quota, changes.set_quota),
        (dict.fromkeys(question.remove), changes.remove_job),  # each once
        (dict.fromkeys(question.drain), changes.drain),
    )
    try:
        found = [make(text) for texts, make in makers for text in texts]
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass what-if --help",)) from None
    if not found and not question.policy:
        raise WindlassError(
            "WL-USE-400",
            "no change is given",
            remedies=("windlass what-if --drain node7", "windlass what-if --add 4xH100:8"),
        )
    return found


def _apply(change: changes.ClusterChange, state: ForwardState) -> None:
    try:
        change.make(state)
    except changes.ChangeError as error:
        if error.kind == "jobs":
            raise _no_such_job(error) from None
        raise missing(error.kind, error.name, error.known) from None
    except QuantityError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass what-if --help",)) from None


def _no_such_job(error: changes.ChangeError) -> WindlassError:
    """Return the error for a job that neither runs nor waits; it may have ended."""
    shown = ", ".join(error.known[:8]) + (f" and {len(error.known) - 8} more" if len(error.known) > 8 else "")
    return WindlassError(
        "WL-JOB-404",
        f'there is no running or pending job "{error.name}"',
        evidence=f"running and pending jobs: {shown}" if shown else "there are no running or pending jobs",
        remedies=(*(f"did you mean {match}?" for match in nearest(error.name, error.known)), "windlass ps"),
    )


def _remove_node_pods(model: ClusterModel, before: ForwardState, after: ForwardState) -> None:
    """Remove DaemonSet and static pods of removed nodes, as they are not placed elsewhere."""
    for key, pod in model.objects.pods.items():
        owner = pod.controller
        place = before.tasks[key].node if key in before.tasks else ""
        if owner is not None and owner.kind in OF_NODES and place and place not in after.nodes:
            task = after.tasks.pop(key, None)
            if task is not None and not any(other.group == task.group for other in after.tasks.values()):
                after.groups.pop(task.group, None)


def _policy(name: str, warn: plan.Warn) -> SchedulerConfig:
    if name in NAMED:
        return configuration.parse(NAMED[name], name).config if NAMED[name] else SchedulerConfig()
    reject_directory(name, "windlass what-if --policy easy")
    try:
        return plan.read_config(name, warn).config
    except WindlassError as error:
        if error.code != "WL-USE-400":
            raise
        raise WindlassError(
            "WL-USE-404",
            f'policy "{name}" does not exist, and there is no file of that name',
            evidence="policies: " + ", ".join(NAMED),
            remedies=("windlass what-if --policy easy", "windlass what-if --policy scheduler.conf"),
        ) from None


def _simulated_cluster(
    found: plan.Loaded, policy: SchedulerConfig, now: float, counts: str | None
) -> SimulatedCluster:
    """Return the cluster as a scheduler with this configuration sees it.

    ``counts``: counters of time-sharing in the cluster, used if they fit.
    """
    model = found.model

    def engine() -> Engine:
        new_engine = make_engine(policy, lambda _: None, base=QUIET)
        counts_text.load_if_possible(new_engine.state.time_sharing, counts, now)
        return new_engine

    reads = engine()
    model.read_labels(reads.reads, images=reads.reads_images)
    model.configure(
        tiers=bool(policy.tiers), exclusive=exclusive_rules(policy), foreign_queue=foreign_queue(policy)
    )
    model.resend()
    return SimulatedCluster(state_of(model.take(now), now), engine)


def _history(found: plan.Loaded, question: WhatIfQuestion, learned: Mapping[str, Any] | None) -> History:
    if not learns(found.parsed.config):
        return History()
    if not question.files:
        return history_of(learned, found.model)
    history = History()
    learn(history, found.model)
    return history


def _seconds(option: str, text: str) -> float:
    try:
        seconds = durations.parse_long(text)
    except ValueError as error:
        raise WindlassError(
            "WL-USE-400", f"{option}: {error}", remedies=(f"windlass what-if {option} 2h",)
        ) from None
    if seconds <= 0:
        raise WindlassError(
            "WL-USE-400",
            f"{option}: {text} is not greater than 0s",
            remedies=(f"windlass what-if {option} 2h",),
        )
    return seconds


def _ends(state: ForwardState, run_times: SampledRunTimes) -> tuple[KnownEnds, KnownEnds]:
    """Return the numbers for running and for pending groups."""
    running, waiting = KnownEnds(), KnownEnds()
    tasks: dict[str, list[Task]] = {key: [] for key in sorted(state.groups.keys() & state.alive())}
    for task in state.tasks.values():
        if task.group in tasks and task.state not in OVER:
            tasks[task.group].append(task)
    for key, some in tasks.items():
        ends = running if any(task.state in RUNS for task in some) else waiting
        ends.count += 1
        if all(task.run_limit is None for task in some) and run_times.draw(state.groups[key], "") is None:
            ends.unknown += 1
    return running, waiting


# ---------------------------------------------------------------------- printing


def document(found: WhatIfAnswer) -> dict[str, Any]:
    """Return the answer for programs; seconds, ``null`` for never."""
    comparison = found.comparison
    return {
        "apiVersion": "windlass.dev/v1alpha1",
        "kind": "WhatIf",
        "changes": list(found.said),
        "samples": comparison.samples,
        "runningWithoutKnownEnd": found.running.unknown,
        "running": found.running.count,
        "waitingWithoutKnownEnd": found.waiting.unknown,
        "waiting": found.waiting.count,
        "podsOfOthers": found.others.pods,
        "gpusOfOthers": found.others.gpus,
        "totals": {
            **{kind: comparison.count(kind) for kind in ("sooner", "later")},
            "same": _unchanged(comparison),
        }
        | {"stopped": sum(1 for shift in comparison.shifts if _stopped(shift))},
        "jobs": [_record(shift, found.both) for shift in comparison.shifts],
    }


def _record(shift: Shift, both: bool) -> dict[str, Any]:
    namespace, _, name = job_title(shift.group).partition("/")
    return {
        "namespace": namespace,
        "job": name,
        "queue": shown(shift.queue, both),
        "gpus": shift.gpus,
        "running": shift.runs,
        "change": kind_of(shift),
        "before": _band(shift.before),
        "after": _band(shift.after),
        "laterSeconds": _band(shift.later),
        "moreStops": round(shift.stops, 3),
    }


def _band(band: Band) -> dict[str, float | None]:
    values = {"p10": band.low, "p50": band.middle, "p90": band.high}
    return {name: None if isinf(value) else round(value, 1) for name, value in values.items()}


def as_text(found: WhatIfAnswer) -> str:
    """Return the answer for people; the largest changes first."""
    comparison = found.comparison
    shown_shifts = [shift for shift in comparison.shifts if kind_of(shift) != "same" or _stopped(shift)]
    shown_shifts.sort(key=lambda shift: (-abs(shift.later.middle), natural_key(shift.group)))
    lines = [f"{', '.join(found.said)}: {plural(comparison.samples, 'sample')} of run times\n"]
    if shown_shifts:
        rows = [
            [
                job_title(shift.group),
                shown(shift.queue, found.both),
                f"{shift.gpus:g}",
                _when(shift.before, shift.runs),
                _when(shift.after, shift.runs and not _stopped(shift)),
                _shift(shift),
            ]
            for shift in shown_shifts[:MAX_SHOWN_JOBS]
        ]
        lines.append(
            tables.render(
                ["JOB", "QUEUE", "GPUS", "START NOW", "START THEN", "DIFFERENCE"], rows, right=frozenset({2})
            )
        )
        if len(shown_shifts) > MAX_SHOWN_JOBS:
            lines.append(
                f"{plural(len(shown_shifts) - MAX_SHOWN_JOBS, 'more job')} not shown; -o json lists all\n"
            )
    counts = [f"{comparison.count(kind)} {kind}" for kind in ("sooner", "later")]
    lines.append(f"{', '.join(counts)}, {_unchanged(comparison)} as before\n")
    stopped = sum(1 for shift in shown_shifts if _stopped(shift))
    if stopped:
        lines.append(f"{plural(stopped, 'running job')} would be stopped\n")
    lines += [*_unknown_ends(found), found.others.words()]
    return "\n".join(lines[:2]) + "".join(lines[2:]) if shown_shifts else "".join(lines)


def _unknown_ends(found: WhatIfAnswer) -> Iterator[str]:
    """Yield the usual reason why a job never starts: jobs before it have no known end."""
    if not found.running.count and not found.waiting.count:
        yield "there are no running or pending jobs\n"
    for ends, state in ((found.running, "running"), (found.waiting, "pending")):
        if ends.unknown:
            has = "has" if ends.unknown == 1 else "have"
            yield (
                f"{ends.unknown} of {plural(ends.count, f'{state} job')} {has} no known run time and never "
                f"end{'s' * (ends.unknown == 1)} in the simulation; to assume one: --run-time 2h\n"
            )


def _unchanged(comparison: Comparison) -> int:
    """Return the number of jobs that start as before and are not stopped."""
    return sum(1 for shift in comparison.shifts if kind_of(shift) == "same" and not _stopped(shift))


def _stopped(shift: Shift) -> bool:
    """Return whether the change usually stops the job."""
    return shift.runs and shift.stops >= STOPPED


def _when(band: Band, runs: bool) -> str:
    """Return the start as ``~2h (~1h to ~3h)``; without the band if both ends look the same."""
    if runs and not band.high:
        return "runs"
    low, middle, high = map(_time, (band.low, band.middle, band.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def _time(seconds: float) -> str:
    if isinf(seconds):
        return "never"
    return "now" if seconds < 1 else approximate_duration(seconds)


def _shift(shift: Shift) -> str:
    if _stopped(shift):
        return f"stopped, {'never restarted' if isinf(shift.after.middle) else _difference(shift)}"
    return _difference(shift)


def _difference(shift: Shift) -> str:
    kind = kind_of(shift)
    if kind == "same":
        return "restarted at once"
    if isinf(shift.later.middle):
        never = "never restarted" if shift.runs else "never starts"
        return "only then" if shift.later.middle < 0 else never
    parts = sorted(abs(value) for value in (shift.later.low, shift.later.high))
    same_side = shift.later.low * shift.later.high > 0 and not isinf(parts[1])
    low, middle, high = (
        approximate_duration(parts[0]),
        approximate_duration(abs(shift.later.middle)),
        approximate_duration(parts[1]),
    )
    if low == high and same_side:
        return f"{middle} {kind}"
    band = f"{low} to {high}" if same_side else f"{_signed(shift.later.low)} to {_signed(shift.later.high)}"
    return f"{middle} {kind} ({band})"


def _signed(seconds: float) -> str:
    if isinf(seconds):
        return "never" if seconds > 0 else "only then"
    if abs(seconds) < 1:
        return "as before"
    return f"{approximate_duration(abs(seconds))} {'later' if seconds > 0 else 'sooner'}"


@dataclass(frozen=True, slots=True)
class ForeignPods:
    """Pods of other schedulers that hold devices.

    They are not simulated, so they never end.

    ``gone``: number of ``pods`` on nodes that the change removes.
    """

    pods: int
    gpus: float
    gone: int

    def words(self) -> str:
        """Return a text for people; empty if there are none."""
        if not self.pods:
            return ""
        singular = self.pods == 1
        text = f"{plural(self.pods, 'pod')} of other schedulers hold{'s' * singular} {self.gpus:g} GPU"
        text += f"{'' if self.gpus == 1 else 's'} and never end{'s' * singular} in the simulation"
        if self.gone == 1:
            text += "; 1 of them is removed with its node and not placed elsewhere"
        elif self.gone:
            text += f"; {self.gone} of them are removed with their nodes and not placed elsewhere"
        return text + "\n"


def foreign_pods(before: ForwardState, after: ForwardState) -> ForeignPods:
    """Return the pods of ``before`` that hold devices and have no group."""
    held = {task.key: gpus for task in before.tasks.values() if (gpus := _held_gpus(before, task))}
    removed = sum(1 for key in held if key not in after.tasks)
    return ForeignPods(len(held), sum(held.values()), removed)


def _held_gpus(state: ForwardState, task: Task) -> float:
    if task.state not in RUNS or task.group in state.groups:
        return 0.0
    return sum(units for name, units in task.needs.request if is_device(name)) / 1000
