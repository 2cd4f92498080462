"""Input and output of ``windlass sim pack``: lists of nodes and pods → runs → table, document or CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from windlass.api.errors import WindlassError
from windlass.cli import tables
from windlass.cli.errors import nearest
from windlass.cli.simulate.trace_files import INPUT_ERROR, is_shapes, read_table
from windlass.cli.text import plural
from windlass.kits.clock import SystemClock
from windlass.kits.installation import extra_command
from windlass.kits.process_pool import map_in_processes
from windlass.kits.rng import seeded
from windlass.sim.cluster import gpus_of, make_nodes, model_of, parse
from windlass.sim.traces import openb
from windlass_lab.packing.lp_bound import OptimalMissing, packing_bound
from windlass_lab.packing.packing import POINTS, WITH_MOVES, Cluster, Packed, pack, sequence
from windlass_lab.packing.packing_policies import PackingPolicy, names, pack_policy


@dataclass(frozen=True, slots=True)
class PackWork:
    """One run, for a process of its own. ``defrag``: percent of the running GPUs that may be moved."""

    cluster: Cluster
    policy: str
    seed: int
    defrag: float = 0.0


def run_one(work: PackWork) -> Packed:
    policy = pack_policy(work.policy)
    if policy is None:
        raise ValueError(f"there is no policy {work.policy}")
    return pack(work.cluster, policy, work.seed, SystemClock(), defrag_percent=work.defrag)


def runs(
    cluster: Cluster,
    policies: Sequence[PackingPolicy],
    seeds: Sequence[int],
    jobs: int,
    defrag: float = 0.0,
) -> Iterator[Packed]:
    """Every policy with every seed, as they are done; with ``defrag``, each without moves and with them."""
    shares = (0.0, defrag) if defrag else (0.0,)
    todo = [
        PackWork(cluster, policy.name, seed, share)
        for policy in policies
        for seed in seeds
        for share in shares
    ]
    for _, found in map_in_processes(run_one, todo, jobs):
        yield found


def in_order(policies: Sequence[PackingPolicy], *, moves: bool) -> list[str]:
    """The names of results in the order of the policies; ``moves``: each without them and with them."""
    kinds = ("", WITH_MOVES) if moves else ("",)
    return [policy.name + kind for policy in policies for kind in kinds]


def left_over(results: Iterable[Packed], order: Sequence[str], seeds: int) -> list[str]:
    """Return the results that were not completed, as text: name, and number of completed seeds."""
    done = Counter(result.policy for result in results)
    return [f"{name} ({done[name]} of {plural(seeds, 'seed')})" for name in order if done[name] < seeds]


def bounds(cluster: Cluster, seeds: Sequence[int]) -> dict[int, float]:
    """Seed → the most that could be allocated of its pods, in percent. Raises :class:`WindlassError`."""
    try:
        return {
            seed: packing_bound(
                cluster.nodes, sequence(cluster.pods, cluster.capacity, seeded(seed), cluster.tune)
            ).percent
            for seed in seeds
        }
    except OptimalMissing as error:
        raise WindlassError(
            "WL-USE-400", str(error), evidence="import highspy", remedies=(extra_command("optimal"),)
        ) from None


def kept_bounds(cluster: Cluster, results: Iterable[Packed]) -> dict[tuple[str, int], float]:
    """Return (policy, seed) → upper bound (percent) for the run with moves: admitted pods keep running."""
    found: dict[tuple[str, int], float] = {}
    for result in results:
        coming = sequence(cluster.pods, cluster.capacity, seeded(result.seed), cluster.tune)
        running = [coming[number] for number in result.placed]
        found[result.policy, result.seed] = packing_bound(cluster.nodes, coming, running).percent
    return found


# ---------------------------------------------------------------------- what is given


def read_cluster(nodes: str, pods: str, tune: float) -> Cluster:
    """Read the cluster. Raises :class:`WindlassError`.

    ``nodes``: a file, or shapes. Nodes given as shapes have unlimited CPU and memory.
    """
    remedy = "windlass sim pack --help"
    machines = _of_shapes(nodes, remedy) if is_shapes(nodes) else read_table(nodes, openb.read_nodes, remedy)
    work = read_table(pods, openb.read_pods, remedy)
    if not sum(node.gpus for node in machines):
        raise WindlassError(
            INPUT_ERROR,
            f"{nodes} has no node with GPUs",
            evidence=plural(len(machines), "node"),
            remedies=(remedy,),
        )
    if not work:
        raise WindlassError(INPUT_ERROR, f"{pods} has no pods", evidence="only a header", remedies=(remedy,))
    return Cluster(tuple(machines), tuple(work), tune)


def _of_shapes(text: str, remedy: str) -> list[openb.OpenbNode]:
    try:
        found = make_nodes(parse(text))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=(remedy,)) from None
    return [
        openb.OpenbNode(
            node.name,
            node.allocatable["cpu"],
            node.allocatable["memory"] // openb.MIB,
            gpus_of(node),
            model_of(node),
        )
        for node in found
    ]


def chosen(given: Sequence[str]) -> list[PackingPolicy]:
    """The policies of ``--policy``, by comma or repeated. Raises :class:`WindlassError`."""
    found: dict[str, PackingPolicy] = {}
    for name in (name.strip() for text in given for name in text.split(",")):
        policy = pack_policy(name) if name else None
        if policy is not None:
            found[name] = policy
        elif name:
            raise WindlassError(
                "WL-USE-400",
                f'there is no packing policy "{name}"',
                evidence="policies: " + ", ".join(names()),
                remedies=(
                    *[f"did you mean {one}?" for one in nearest(name, names(), 1)],
                    "windlass sim policies",
                ),
            )
    if not found:
        raise WindlassError(
            "WL-USE-400",
            "--policy names none",
            evidence="policies: " + ", ".join(names()),
            remedies=("windlass sim policies",),
        )
    return list(found.values())


# ---------------------------------------------------------------------- printing


def as_table(
    results: Sequence[Packed],
    most: Mapping[int, float] | None = None,
    kept: Mapping[tuple[str, int], float] | None = None,
) -> str:
    """One line per policy, the mean over its seeds. ``most``: of :func:`bounds`; ``kept``: of :func:`kept_bounds`."""
    header = ["POLICY", "SEEDS", *[f"ALLOC@{p}" for p in POINTS], *[f"FRAG@{p}" for p in POINTS]]
    header += ["BOUND", "TO BOUND"] if most else []
    header += ["BOUND BY MOVES"] if kept else []
    header += ["MOVED", "SECONDS"]
    by_policy: dict[str, list[Packed]] = {}
    for result in results:
        by_policy.setdefault(result.policy, []).append(result)
    rows = []
    for name, some in by_policy.items():
        row = [name, str(len(some))]
        row += [_mean([run.allocation_percent.get(p) for run in some]) for p in POINTS]
        row += [_mean([run.fragmented_percent.get(p) for run in some]) for p in POINTS]
        if most:
            left = [most[run.seed] - run.allocation_percent.get(POINTS[-1], 0.0) for run in some]
            row += [f"{fmean(most[run.seed] for run in some):.2f}", f"{fmean(left):.2f}"]
        if kept:
            row.append(f"{fmean(kept[run.policy, run.seed] for run in some):.2f}")
        row += [f"{fmean(run.migrated_percent for run in some):.2f}%"]
        row += [f"{fmean(run.seconds for run in some):.1f}"]
        rows.append(row)
    return tables.render(header, rows, right=frozenset(range(1, len(header))))


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):.2f}" if known else "-"


def document(
    results: Sequence[Packed],
    most: Mapping[int, float] | None = None,
    kept: Mapping[tuple[str, int], float] | None = None,
) -> dict[str, Any]:
    """Return the document of ``-o json``."""
    found: list[dict[str, object]] = []
    for run in results:
        figures = run.figures
        if most:
            figures["bound_percent"] = round(most[run.seed], 3)
        if kept:
            figures["kept_bound_percent"] = round(kept[run.policy, run.seed], 3)
        found.append(figures)
    return {"results": found}
