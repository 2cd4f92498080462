"""Laboratory of the experiments: traces by name, and replays and packings that are computed once.

``RESTART`` is charged to every job that was stopped and goes on, with every policy: 7 s with one GPU, 30 s with up to
eight, 60 s with more (the published cost of Helios' simulator).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any

from windlass.kits.clock import Clock
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.metrics import measure, percentile, queue_seconds
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import POLICIES, ReplayPolicy
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.sim.traces import formats, openb
from windlass_lab.packing.packing import Cluster, Packed, pack
from windlass_lab.packing.packing_policies import PACK_POLICIES

PHILLY = "philly/philly_oct.csv.gz"
MURI1, MURI3 = "muri/trace1.csv.gz", "muri/trace3.csv.gz"
MURI_TABLE = "muri/published_table.csv"
OPENB_NODES, OPENB_PODS = "openb/openb_nodes.csv.gz", "openb/pods_default.csv.gz"
OPENB_CPU200 = "openb/pods_cpu200.csv.gz"
GENAI = "genai/lora_requests.csv.gz"
AZURE = "azure_llm/llm2023_code.csv.gz"

RESTART = RestartCost(7.0, 30.0, 60.0)
USUAL = ReplayOptions(effort=Effort(restart=RESTART), timeline=False)

Figures = dict[str, Any]
Tell = Callable[[str, int, int], None]
"""Progress callback: name of the step, amount done, total amount."""


def silent(what: str, done: int, total: int) -> None:
    """Ignore the progress."""


class Lab:
    """``read``: the lines of a trace by its name. ``clock`` tells how long experiments take. ``tell`` hears of
    progress. ``brief``: experiments that repeat themselves with several seeds make do with one. ``processor``: the
    clock that speed is measured by. One experiment after the other uses it; equal replays are made once."""

    def __init__(
        self,
        read: Callable[[str], Sequence[str]],
        clock: Clock,
        tell: Tell = silent,
        *,
        brief: bool = False,
        processor: Clock | None = None,
    ) -> None:
        self.read = read
        self.clock = clock
        self.tell = tell
        self.brief = brief
        self.processor = processor or clock
        self._jobs: dict[str, list[TraceJob]] = {}
        self._figures: dict[tuple[str, str, str, int], Figures] = {}
        self._packed: dict[tuple[str, str, int], Packed] = {}

    def jobs(self, trace: str) -> list[TraceJob]:
        """Raises :class:`~windlass.sim.traces.rows.TraceError`."""
        if trace not in self._jobs:
            self._jobs[trace] = formats.read(self.read(trace), trace)
        return self._jobs[trace]

    def table(self, name: str) -> list[dict[str, str]]:
        """A published table by rows."""
        return list(csv.DictReader(self.read(name)))

    def usual(self, trace: str, nodes: str, policy: str, pod_gpus: int = 0) -> Figures:
        """The figures of a whole trace at the usual cost of restarts."""
        key = (trace, nodes, policy, pod_gpus)
        if key not in self._figures:
            options = ReplayOptions(effort=USUAL.effort, pod_gpus=pod_gpus, timeline=False)
            self._figures[key] = self.figures(self.jobs(trace), nodes, policy, options)
        return self._figures[key]

    def figures(
        self, jobs: Sequence[TraceJob], nodes: str, policy: str | ReplayPolicy, options: ReplayOptions = USUAL
    ) -> Figures:
        """The figures of one replay, and ``queue_p95_seconds``, in which some claims are made."""
        outcome = self.play(jobs, nodes, policy, options)
        figures = measure(policy if isinstance(policy, str) else policy.name, outcome).figures
        waits = sorted(queue_seconds(ended) for ended in outcome.jobs if ended.ended is not None)
        return figures | {"queue_p95_seconds": percentile(waits, 95)}

    def play(
        self, jobs: Sequence[TraceJob], nodes: str, policy: str | ReplayPolicy, options: ReplayOptions = USUAL
    ) -> ReplayOutcome:
        """One replay."""
        known = POLICIES[policy] if isinstance(policy, str) else policy
        title = f"{known.name} on {nodes}"
        return replay(
            jobs,
            make_nodes(parse(nodes)),
            known,
            options,
            lambda done: self.tell(title, done, len(jobs)),
        )

    def cluster(self, pods: str) -> Cluster:
        """OpenB's nodes with a list of pods, for packing."""
        machines = openb.read_nodes(self.read(OPENB_NODES), OPENB_NODES)
        return Cluster(machines, openb.read_pods(self.read(pods), pods))

    def packed(self, pods: str, policy: str, seed: int) -> Packed:
        """One packing run."""
        key = (pods, policy, seed)
        if key not in self._packed:
            cluster, title = self.cluster(pods), f"{policy}, seed {seed}"
            self._packed[key] = pack(
                cluster,
                PACK_POLICIES[policy],
                seed,
                self.clock,
                lambda done: self.tell(title, done, len(cluster.pods)),
            )
        return self._packed[key]
