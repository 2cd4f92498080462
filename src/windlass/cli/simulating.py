"""How ``windlass sim run`` plays: options → policies and a cluster → figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from windlass.api.errors import WindlassError
from windlass.cli.failures import nearest
from windlass.cli.invocation import Invocation
from windlass.cli.progress import progress
from windlass.cli.seeds import chosen_seeds
from windlass.cli.tracefiles import is_shapes, read_table
from windlass.cli.words import plural
from windlass.kits import durations, garbage, memory
from windlass.model.foreign_groups import NOT_PREEMPTIBLE_FROM
from windlass.sim import cluster
from windlass.sim.batches import batches
from windlass.sim.catalogue import OF_PACK
from windlass.sim.estimates import RUN_TIMES
from windlass.sim.failures import NodeFailures
from windlass.sim.jobs import TraceJob
from windlass.sim.metrics import Metrics, measure
from windlass.sim.nowhere import nowhere
from windlass.sim.outcome import Outcome
from windlass.sim.policies import KAI_LIKE, POLICIES, Policy, as_configured
from windlass.sim.progress import Effort, RestartCost
from windlass.sim.replay import VAIN, Options, replay
from windlass.sim.spread import SEED, over_seeds
from windlass.sim.synthetic import Profile, generate
from windlass.sim.traces import formats, openb, table
from windlass.sim.waitbound import least_mean_queue
from windlass.spi.objects import Node


def put_together(jobs: list[TraceJob], text: str) -> list[TraceJob]:
    """Jobs of one AI model in batches of that length; as they are for an empty one. Raises :class:`WindlassError`."""
    if not text:
        return jobs
    try:
        return batches(jobs, _seconds_of("--batch", text, positive=True))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim run --help",)) from None


def chosen_policies(
    given: Sequence[str], run_times: str = "", *, both: bool = False, warn: Callable[[str], None]
) -> list[Policy]:
    """The policies of ``--policy``, by comma or repeated, and those of scheduler configurations that are files; those
    that go by run times, by each kind of ``run_times`` (by comma; empty: by the truth, as they are); with ``both``,
    those that share time also as if nobody had agreed. ``warn`` is told what a file has that is left out. Raises
    :class:`WindlassError`."""
    names, kinds = _parts(given), _parts([run_times])
    files = [name for name in names if name not in POLICIES and _is_file(name)]
    for name in names:
        if name not in files:
            _check_policy(name)
    _check("kind of run times", kinds, RUN_TIMES, "windlass sim run --help")
    if not names:
        raise WindlassError(
            "WL-USE-400",
            "--policy names no policy",
            evidence="policy: " + ", ".join(POLICIES),
            remedies=("windlass sim policies",),
        )
    titles = _titles(files)
    chosen = [_of_file(name, titles[name], warn) if name in files else POLICIES[name] for name in names]
    if kinds:
        chosen = [made for one in chosen for made in dict.fromkeys(one.by(kind) for kind in kinds)]
    if both:
        chosen = [made for one in chosen for made in ([one, one.unshared()] if one.shares else [one])]
    return chosen


def _is_file(name: str) -> bool:
    """Whether a policy that has no such name is a scheduler configuration, or means to be."""
    return Path(name).is_file() or "/" in name or Path(name).suffix in (".conf", ".yaml", ".yml")


def _titles(files: Sequence[str]) -> dict[str, str]:
    """File → what its policy is called: without its folder, unless another one is called so too."""
    short = {name: Path(name).name for name in files}
    taken = Counter(short.values())
    return {name: name if taken[own] > 1 or own in POLICIES else own for name, own in short.items()}


def _of_file(name: str, title: str, warn: Callable[[str], None]) -> Policy:
    """Raises :class:`WindlassError`."""
    from windlass.cli.planning import read_config  # both: much, for nothing else here
    from windlass.plugins import registry
    from windlass.scheduler.runtimes import learns

    config = read_config(name, warn).config
    _, actions = registry.build(config, warn)
    return as_configured(
        title,
        f"the scheduler configuration {name}",
        config,
        learned=learns(config),
        shares="timeshare" in actions,
    )


def _check_policy(name: str) -> None:
    if name in POLICIES:
        return
    if name in OF_PACK:
        raise WindlassError(
            "WL-USE-400",
            f'"{name}" says where pods go, not which job is next: it is a policy of sim pack',
            evidence=f"policy: {', '.join(POLICIES)}",
            remedies=(f"windlass sim pack --policy {name} --nodes NODES --pods PODS",),
        )
    _check("policy", [name], POLICIES, "windlass sim policies")


def _parts(given: Iterable[str]) -> list[str]:
    """By comma or repeated, each once."""
    return list(dict.fromkeys(part.strip() for text in given for part in text.split(",") if part.strip()))


def _check(what: str, names: Iterable[str], known: Iterable[str], remedy: str) -> None:
    for name in names:
        if name not in known:
            close = [f"did you mean {one}?" for one in nearest(name, known, 1)]
            raise WindlassError(
                "WL-USE-400",
                f'there is no {what} "{name}"',
                evidence=f"{what}: {', '.join(known)}",
                remedies=(*close, remedy),
            )


def check_format(name: str | None) -> None:
    """Raises :class:`WindlassError` for a format that there is not."""
    _check("format", [name] if name else [], formats.FORMATS, "windlass sim formats")


# ---------------------------------------------------------------------- running


@dataclass(frozen=True, slots=True)
class Setup:
    """The cluster and how jobs run on it; ``seeds``: once with each of them. ``said``: the same for people. ``power``:
    the speeds of all cards in sum; ``fastest``: of one."""

    nodes: Sequence[Node]
    options: Options
    said: str
    power: float
    fastest: float
    seeds: Sequence[int]


def who_shares_time(told: str | None, never: bool) -> str:
    """``yes``, ``no`` or ``both``, as ``--time-share`` and ``--no-time-share`` say. Raises :class:`WindlassError`."""
    if never and told not in (None, "no"):
        raise WindlassError(
            "WL-USE-400",
            f"--time-share {told} and --no-time-share contradict each other",
            remedies=("give one of them", "--time-share both, for a column each"),
        )
    return "no" if never else told or "yes"


def setup(given: Mapping[str, Any]) -> Setup:
    """From the options of the command line. Raises :class:`WindlassError`."""
    try:
        nodes = read_nodes(given["nodes"])
        models = {cluster.model_of(node) for node in nodes}
        effort = Effort(
            restart=_restart_cost(given["restart_cost"]),
            checkpoint_seconds=None
            if given["checkpoint"] == "never"
            else _seconds_of("--checkpoint", given["checkpoint"]),
            speeds=_speeds(given["speeds"], models),
            spread_slowdown=given["spread_slowdown"],
            model_load_seconds=_seconds_of("--model-load", given["model_load"]),
        )
        mean = _seconds_of("--mtbf", given["mtbf"], positive=True) if given["mtbf"] else 0.0
        failures = NodeFailures(mean, _seconds_of("--repair", _repair(given)))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim run --help",)) from None
    seeds = _seeds(given["seed"], given["seeds"])
    options = Options(
        effort=effort,
        failures=failures,
        pod_gpus=given["pod_gpus"],
        time_share=given["time_share"] != "no",
        queues=given["by_queue"],
    )
    said = "; ".join([given["nodes"], *_conditions(given, effort)])
    speeds = [(cluster.gpus_of(node), effort.speeds.get(cluster.model_of(node), 1.0)) for node in nodes]
    power = sum(cards * speed for cards, speed in speeds)
    return Setup(nodes, options, said, power, max((speed for _, speed in speeds), default=1.0), seeds)


def _repair(given: Mapping[str, Any]) -> str:
    """How long a node that failed is away, also where nothing is said of it."""
    return "4h" if given["repair"] is None else given["repair"]


def _seeds(one: int | None, several: str) -> list[int]:
    """Raises :class:`WindlassError`."""
    if several and one is not None:
        raise WindlassError(
            "WL-USE-400",
            "--seed and --seeds contradict each other",
            remedies=("give one of them", f"--seeds {one}"),
        )
    return chosen_seeds(several, "windlass sim run --seeds 1-5") if several else [one or 0]


def _conditions(given: Mapping[str, Any], effort: Effort) -> Iterator[str]:
    """Whatever the figures depend on: the cost of restarts, the seed, and all that is not as it is by itself."""
    yield f"a restart costs {effort.restart} s"
    if effort.checkpoint_seconds is None:
        yield "no checkpoints"
    elif effort.checkpoint_seconds:
        yield f"checkpoints every {given['checkpoint']}"
    if given["mtbf"]:
        yield f"a node fails every {given['mtbf']}, for {_repair(given)}"
    if effort.speeds:
        yield "speed of " + ", ".join(f"{model} {speed:g}" for model, speed in effort.speeds.items())
    if given["pod_gpus"]:
        yield f"pods of up to {plural(given['pod_gpus'], 'GPU')}"
    if effort.spread_slowdown > 1:
        yield f"spread jobs take {effort.spread_slowdown:g} times as long"
    if effort.model_load_seconds:
        yield f"a model takes {given['model_load']} to load"
    if given["batch"]:
        yield f"batches of {given['batch']}"
    if given["by_queue"]:
        yield "by queue"
    if given["time_share"] == "no":
        yield "no time-sharing"
    if given["seeds"]:
        yield f"seeds {given['seeds']}: mean ± standard deviation"
    else:
        yield f"seed {given['seed'] or 0}"


def read_nodes(text: str) -> Sequence[Node]:
    """Of shapes, or of the file that has this name. Raises ``ValueError`` or :class:`WindlassError`."""
    if is_shapes(text):
        try:
            return cluster.make_nodes(cluster.parse(text))
        except ValueError as error:
            raise ValueError(f"--nodes: {error}") from None
    return cluster.make_nodes(
        [
            cluster.NodeShape(1, host.gpus, host.model, host.cpu_milli, host.memory_mib * openb.MIB)
            for host in read_table(text, openb.read_nodes, "windlass sim run --help")
        ]
    )


def _restart_cost(text: str) -> RestartCost:
    """Raises ``ValueError``, which names the option."""
    try:
        return RestartCost.parse(text)
    except ValueError as error:
        raise ValueError(f"--restart-cost: {error}") from None


def _seconds_of(option: str, text: str, *, positive: bool = False) -> float:
    """Of what was given for an option. Raises ``ValueError``, which names it."""
    try:
        seconds = durations.parse_long(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    if seconds < 0:
        raise ValueError(f"{option}: {text!r} is less than nothing")
    if positive and not seconds:
        raise ValueError(f"{option}: {text!r} is no time: more than 0s is needed")
    return seconds


def _speeds(given: Sequence[str], models: set[str]) -> dict[str, float]:
    """Raises ``ValueError``, which names the option."""
    found: dict[str, float] = {}
    for text in given:
        model, speed = _speed(text, models)
        if found.setdefault(model, speed) != speed:
            raise ValueError(f"--speed: {model} is {found[model]:g} and {speed:g}; give one of them")
    return found


def _speed(text: str, models: set[str]) -> tuple[str, float]:
    model, _, factor = text.partition("=")
    try:
        speed = float(factor)
    except ValueError:
        speed = 0.0
    if not 0 < speed < inf:
        raise ValueError(f"--speed: {text!r} is no speed of a card, such as H100=2.5")
    if model not in models:
        there = ", ".join(sorted(models - {""})) or "cards of no named model"
        raise ValueError(f"--speed: no node has cards {model!r}; there are {there}")
    return model, speed


Look = Callable[[Metrics, Outcome, int], None]
"""Sees each whole outcome before it goes, with its seed."""


def play_all(
    invocation: Invocation,
    jobs: Sequence[TraceJob],
    policies: Sequence[Policy],
    setup: Setup,
    look: Look | None = None,
) -> Iterator[Metrics]:
    """Every policy with every seed, in this order, as they are done, with the least wait that there is; of several
    seeds each run says its own."""
    garbage.expect_long_lives()
    least = round(least_mean_queue(jobs, setup.power, setup.fastest), 1)
    for policy in policies:
        for seed in setup.seeds:
            metrics, outcome = _play(invocation, jobs, policy, setup, seed)
            metrics.figures["queue_bound_seconds"] = least
            if len(setup.seeds) > 1:
                metrics.figures[SEED] = seed
            if look is not None:
                look(metrics, outcome, seed)
            yield metrics


def of_policies(runs: Sequence[Metrics], seeds: int) -> list[Metrics]:
    """One for each policy that was played with so many seeds: their means, with their spread."""
    by_policy: dict[str, list[Metrics]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run)
    return [over_seeds(found) for found in by_policy.values() if len(found) == seeds]


def _play(
    invocation: Invocation, jobs: Sequence[TraceJob], policy: Policy, setup: Setup, seed: int
) -> tuple[Metrics, Outcome]:
    begun = invocation.clock.monotonic()
    title = policy.name if len(setup.seeds) == 1 else f"{policy.name}, seed {seed}"
    with progress(invocation, title, len(jobs)) as tell:
        outcome = replay(jobs, setup.nodes, policy, replace(setup.options, seed=seed), tell)
    outcome.seconds = invocation.clock.monotonic() - begun
    outcome.memory_bytes = memory.peak_bytes()
    return measure(policy.name, outcome), outcome


def doubts(
    jobs: Sequence[TraceJob], policies: Sequence[Policy], setup: Setup, given: Mapping[str, Any]
) -> Iterator[str]:
    """What was asked for and changes nothing here, and jobs that can run nowhere: for people, before the work."""
    if given["run_times"] and not any(policy.oracle for policy in policies):
        yield "none of these policies goes by run times that could be chosen: --run-times changes nothing"
    if given["time_share"] == "both" and not any(policy.shares for policy in policies):
        yield "none of these policies shares time: there is but one column of each"
    if setup.options.effort.model_load_seconds and not any(job.model for job in jobs):
        yield "no job names an AI model: --model-load changes nothing"
    if given["batch"] and not any(job.model for job in jobs):
        yield "no job names an AI model: --batch changes nothing"
    several = given["by_queue"] and len({job.queue for job in jobs}) > 1
    if given["by_queue"] and not several:
        yield "the trace has but one queue: --by-queue changes nothing"
    firm = sum(job.priority >= NOT_PREEMPTIBLE_FROM for job in jobs)
    if several and firm and any(policy.name == KAI_LIKE for policy in policies):
        yield (
            f"{plural(firm, 'job')} of priority {NOT_PREEMPTIBLE_FROM} and more can never run under {KAI_LIKE}: KAI"
            " lets such work have the quota of its queue alone, and queues of a trace have none"
        )
    if given["mtbf"] and setup.options.effort.checkpoint_seconds is None:
        yield (
            f"nothing is ever saved and nodes fail: a job that they took {VAIN} times in a row before its end is"
            " given up (unfinished)"
        )
    up, away = setup.options.failures.mean_seconds, setup.options.failures.repair_seconds
    if given["mtbf"] and up < away:
        yield f"a node is there for {100 * up / (up + away):.3g} % of the time: the less, the longer a run takes"
    if given["repair"] is not None and not given["mtbf"]:
        yield "without --mtbf no node fails: --repair changes nothing"
    if len(setup.seeds) > 1 and not given["mtbf"]:
        yield (
            "without --mtbf nothing goes by chance, but the pauses of jobs that kube started in part a thousand times:"
            " the seeds may be alike"
        )
    sizes = [policy.pod_gpus or setup.options.pod_gpus for policy in policies]
    smallest = min(filter(None, sizes), default=0)
    for lack, count in nowhere(jobs, setup.nodes, smallest).items():
        who = "it needs" if count == 1 else "they need"
        yield f"{count} of {plural(len(jobs), 'job')} can never run: {who} {lack}"


def drawn(jobs: int, days: float, median: str, seed: int) -> str:
    """A trace of the project's own as text. Raises :class:`WindlassError`."""
    try:
        profile = Profile(jobs=jobs, days=days, median_seconds=_seconds_of("--median", median, positive=True))
        return "".join(table.write(generate(profile, seed)))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim generate --help",)) from None
