"""Progress of one job: speed, cost of a restart, work lost by a stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from msgspec.structs import replace as altered

from windlass.sim.jobs import WHOLE, TraceJob
from windlass.sim.replay.outcome import EndedJob
from windlass.spi.model_names import names_any
from windlass.spi.objects import Group, Task

EXACT = 1e-6
"""Tolerance in seconds: a job that is stopped at the time of a checkpoint has saved its work."""


@dataclass(frozen=True, slots=True)
class RestartCost:
    """Default restart time in seconds until work resumes, for jobs of one GPU, of up to eight, and of more."""

    one: float = 0.0
    few: float = 0.0
    many: float = 0.0

    @staticmethod
    def parse(text: str) -> RestartCost:
        """Parse ``7/30/60``, or one number for all. Raises ``ValueError``."""
        try:
            numbers = [float(part) for part in text.split("/")]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 3) or not all(0 <= number < inf for number in numbers):
            raise ValueError(
                f"{text!r} is no cost of a restart: give one number of seconds, or three, such as 7/30/60"
            )
        return RestartCost(*numbers) if len(numbers) == 3 else RestartCost(*numbers * 3)

    def __str__(self) -> str:
        return f"{self.one:g}/{self.few:g}/{self.many:g}"

    def of(self, job: TraceJob) -> float:
        """As the job says itself, else by its GPUs."""
        if job.restart_seconds is not None:
            return job.restart_seconds
        return self.one if job.gpus <= 1 else self.few if job.gpus <= 8 else self.many


@dataclass(frozen=True, slots=True)
class Effort:
    """Parameters of job execution.

    ``restart``: see :class:`RestartCost`. ``checkpoint_seconds``: default interval of work between checkpoints; 0:
    continuous; ``None``: never, so that a stop loses all work. ``speeds``: device model → speed, default 1; a job runs
    at the speed of its slowest device. ``spread_slowdown``: factor on the duration of a job on more nodes than it
    needs. ``model_load_seconds``: time to load the AI model of a job if the device holds another one.
    """

    restart: RestartCost = field(default_factory=RestartCost)
    checkpoint_seconds: float | None = 0.0
    speeds: Mapping[str, float] = field(default_factory=dict)
    spread_slowdown: float = 1.0
    model_load_seconds: float = 0.0


@dataclass(slots=True)
class JobPod:
    """One pod of a job as the engine knows it."""

    task: Task
    run: JobRun
    gpus: int
    node: str = ""


class JobRun:
    """A job in the course of a replay.

    ``left``: seconds of work at speed 1 that it still has, true as of ``since``; ``rate``: at which of it, 0 while
    it does not run. ``warming``: seconds that come before work, the first ``restarting`` of them those of a restart.
    ``spent``: seconds that it has run for what it has done, restarts and what was lost left out: so long it would
    have run by now without a stop.
    ``epoch``: counts its plans, older ends are void. ``tries``: counts the incarnations of its pods; ``ran``: whether
    it has run for any time, so that its next start is a restart; ``vain``: how often in a row a node took it when it
    had saved no more than the time before.
    """

    __slots__ = (
        "bound",
        "came",
        "ended",
        "epoch",
        "given_up",
        "group",
        "index",
        "job",
        "key",
        "least",
        "left",
        "pods",
        "ran",
        "rate",
        "restarting",
        "saved",
        "since",
        "span_since",
        "spent",
        "tries",
        "vain",
        "warming",
    )

    def __init__(self, index: int, key: str, job: TraceJob) -> None:
        self.index = index
        self.key = key
        self.job = job
        self.ended = EndedJob(job)
        self.group: Group | None = None
        self.pods: dict[str, JobPod] = {}
        self.bound = 0
        """Number of bound pods."""
        self.came = 0.0
        """Creation time of its pods."""
        self.least = 0
        """With how many it runs."""
        self.left = job.duration_seconds
        self.rate = 0.0
        self.since = 0.0
        self.spent = 0.0
        self.span_since = 0.0
        self.warming = 0.0
        self.restarting = 0.0
        self.epoch = 0
        self.tries = 0
        self.ran = False
        self.saved = 0.0
        """Seconds of work that it had saved when a node took it last."""
        self.vain = 0
        self.given_up = False
        """True if its owner gave it up: it never comes again."""

    def nodes(self) -> tuple[str, ...]:
        """The nodes of its pods, one for each pod that has one."""
        return tuple([pod.node for pod in self.pods.values() if pod.node])

    def sizes(self) -> tuple[int, ...]:
        """The devices of each of those pods; none where all have as many."""
        sizes = [pod.gpus for pod in self.pods.values() if pod.node]
        return tuple(sizes) if len(set(sizes)) > 1 else ()

    def milli(self) -> int:
        """Thousandths of devices that it holds."""
        job = self.job
        held = job.gpus
        if self.bound < len(self.pods):
            held = sum(pod.gpus for pod in self.pods.values() if pod.node)
        return held * job.gpu_milli

    def gpus(self) -> float:
        """The devices that it holds, parts as such."""
        return self.milli() / WHOLE

    # ------------------------------------------------------------------ work

    def settle(self, now: float) -> None:
        """Count what has been done up to now."""
        if not self.rate:
            return
        passed = now - self.since
        self.ran = self.ran or passed > 0
        warm = min(self.warming, passed)
        self.warming -= warm
        if self.restarting:
            restarted = min(self.restarting, warm)
            self.restarting -= restarted
            self.spent -= restarted
            self.ended.lost_gpu_seconds += restarted * self.gpus()
        self.spent += passed
        self.left = max(0.0, self.left - (passed - warm) * self.rate)
        self.since = now

    def go(self, now: float, rate: float, restart: float, load: float) -> float:
        """It runs from now on at ``rate``, after so many seconds of restart and of loading; when it will have ended."""
        self.restarting += restart
        self.warming += restart + load
        self.rate = rate
        self.since = now
        self.epoch += 1
        return now + self.warming + self.left / rate

    def foretell(self, seconds: float, *, exact: bool) -> bool:
        """Have its group say that it takes so long from its next or last start on, where a policy knows that ``exact``
        and the group says something else. An elastic one says what it said: its pods start one after the other.
        Whether it says anything new."""
        group = self.group
        if not exact or group is None or self.least < len(self.pods):
            return False
        if group.run_estimate is None or abs(group.run_estimate - seconds) <= EXACT:
            return False
        self.group = altered(group, run_estimate=seconds)
        return True

    def joined(self, load: float) -> None:
        """One more of its pods runs, which loads its model for so many seconds while the others go on: that costs its
        part of the time of all."""
        loading = self.warming - self.restarting
        self.warming += (max(0.0, load - self.restarting) - loading) / self.bound

    def fail(self, every: float | None) -> None:
        """A node took it; see :meth:`stop`."""
        self.stop(every)
        saved = self.job.duration_seconds - self.left
        self.vain = 0 if saved > self.saved else self.vain + 1
        self.saved = saved

    def every(self, otherwise: float | None) -> float | None:
        """After how much work it saves what it has done, where ``otherwise`` holds of those that say nothing."""
        said = self.job.checkpoint_seconds
        return otherwise if said is None else said

    def stop(self, every: float | None, *, signalled: bool = False) -> None:
        """It runs no more; what it has not saved is to be done again. ``every``: see
        ``Effort.checkpoint_seconds``. ``signalled``: it has saved everything before."""
        every = 0.0 if signalled else self.every(every)
        done = self.job.duration_seconds - self.left
        kept = 0.0 if every is None else done if every <= 0 else (done + EXACT) // every * every
        self.ended.lost_gpu_seconds += (done - kept) * self.job.milli / WHOLE
        self.spent = max(0.0, self.spent - (done - kept) / self.rate) if kept else 0.0
        self.left = self.job.duration_seconds - kept
        self.rate = 0.0
        self.warming = self.restarting = 0.0
        self.epoch += 1


class Speeds:
    """Speed of a job on its current nodes."""

    def __init__(self, effort: Effort, models: Mapping[str, str], cards: Mapping[str, int]) -> None:
        """``models``: node → model of its devices; `cards`: node → number of devices."""
        self._slowdown = effort.spread_slowdown
        self._of_node = {name: effort.speeds.get(model, 1.0) for name, model in models.items()}
        self._of_model = {model: effort.speeds.get(model, 1.0) for model in models.values()}
        self._plain = self._slowdown == 1.0 and all(speed == 1.0 for speed in self._of_node.values())
        self._largest = max(cards.values(), default=0)

    def slow_down(self, node: str, factor: float) -> None:
        """Let a node run at ``factor`` times its speed from now on."""
        self._of_node[node] *= factor
        self._plain = False

    def rate(self, run: JobRun) -> float:
        """Seconds of work per second: its slowest device's speed, less what spreading costs, in proportion to how
        many of its pods run."""
        part = run.bound / len(run.pods) if run.least < len(run.pods) else 1.0
        if self._plain:
            return part
        nodes = set(run.nodes())
        rate = part * min(self._of_node[name] for name in nodes)
        held = sum(pod.gpus for pod in run.pods.values() if pod.node)
        return rate / self._slowdown if len(nodes) > self._needed(held) else rate

    def slowest(self, run: JobRun) -> float:
        """The least rate at which it may go once all of its pods run."""
        if self._plain:
            return 1.0
        takes = run.job.gpu_models or ("",)
        speeds = [speed for model, speed in self._of_model.items() if names_any(takes, model)]
        rate = min(speeds, default=1.0)
        return rate / self._slowdown if len(run.pods) > self._needed(run.job.gpus) else rate

    def _needed(self, held: int) -> int:
        """On how many nodes so many devices are at the least."""
        return -(-held // self._largest) if held and self._largest else 1
