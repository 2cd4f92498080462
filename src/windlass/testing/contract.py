"""Contract tests of a policy: its Protocols, tried on many small clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windlass.engine.deltas import NodeUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.engine.nodes.view import TableView
from windlass.engine.placement.topology_domains import DomainSums, DomainTree
from windlass.spi import plugins as spi
from windlass.spi import renamed
from windlass.spi.devices import CandidateDevice, DeviceChoice, DeviceNeed
from windlass.spi.objects import Group, Needs, Node, Task, TaskState
from windlass.spi.topology import Level

GIB = 1 << 30
GPU = "nvidia.com/gpu"
_Random = np.random.Generator
_Ask = Callable[[TableView], Any]


class ContractViolation(AssertionError):
    """The policy does something that its Protocol rules out; the text says what, and on which input."""


def check(policy: object, *, trials: int = 30, seed: int = 0) -> None:
    """Ask the policy about ``trials`` random clusters. Raises :class:`ContractViolation`.

    Held against it: a name; answers of the right shape and kind; the same answer to the same question, and
    for some nodes the same as for all; scores from 0 to 100, and moving as its trend says; findings that
    block exactly the nodes that it refuses. A policy that implements no Protocol at all fails as well.
    """
    renamed.accept_old_hooks(policy)
    if not isinstance(getattr(policy, "name", None), str):
        raise ContractViolation("a policy has a name")
    facets = [
        protocol
        for protocol in (
            spi.Filter,
            spi.Capacity,
            spi.Score,
            spi.Admit,
            spi.QueueOrder,
            spi.GroupOrder,
            spi.TaskOrder,
            spi.Domain,
            spi.RelativeScore,
            spi.DomainScore,
            DeviceChoice,
        )
        if isinstance(policy, protocol)
    ]
    if not facets and not any(hasattr(policy, method) for method in _OTHER_METHODS):
        raise ContractViolation(f"{_name(policy)} implements no extension point of windlass.spi")
    labels = list(getattr(policy, "reads", ()))
    random = np.random.default_rng(seed)
    for _ in range(trials):
        engine = _cluster(random)
        needs = _needs(random, labels)
        _check_nodes(policy, engine, needs)
        if isinstance(policy, spi.DomainScore):
            _check_domains(policy, engine, needs)
        if isinstance(policy, DeviceChoice):
            _check_choice(policy, needs, random)
        if isinstance(policy, spi.Admit):
            _check_admits(policy, engine, needs)
        if isinstance(policy, spi.TaskOrder):
            _check_keys(policy, [policy.task_key(_task(n, needs, random)) for n in range(4)])


_OTHER_METHODS = (
    "preemption_terms",
    "protects_victim",
    "victim_key",
    "validates",
    "divide",
    "victims",
    "admit",
    "starving",
    "rank",
)


def _check_choice(policy: DeviceChoice, needs: Needs, random: np.random.Generator) -> None:
    """Check that ``prefer`` returns one number per device or ``None``, twice the same."""
    free = random.integers(500, 1001, size=4).tolist()
    cards = [
        CandidateDevice(
            "nvidia.com/gpu", at, "Some-GPU", 81_920, milli, milli * 81_920 // 1000, int(milli < 1000)
        )
        for at, milli in enumerate(free)
    ]
    need = DeviceNeed("nvidia.com/gpu", milli=500, memory_milli=500)
    first, second = (policy.prefer(needs, need, cards) for _ in range(2))
    if first is None and second is None:
        return
    if first is None or second is None or list(first) != list(second):
        raise ContractViolation(f"{_name(policy)}: prefer answers otherwise the second time, for {needs}")
    if len(first) != len(cards) or not all(np.isfinite(first)):
        raise ContractViolation(f"{_name(policy)}: prefer must return one number per device, for {needs}")


def _check_domains(policy: spi.DomainScore, engine: Engine, needs: Needs) -> None:
    """One number for each domain, the same at the second time."""
    table = engine.state.table
    tree = DomainTree(table, (Level("kubernetes.io/hostname"),), nested=True)
    codes = np.arange(1, len(tree.names[0]), dtype=np.int64)
    first, second = (
        policy.domain_scores(dict(needs.request), DomainSums(table, tree, 0, codes)) for _ in range(2)
    )
    if first.shape != codes.shape or not np.isfinite(first).all():
        raise ContractViolation(
            f"{_name(policy)}: domain_scores gives one number for each domain, for {needs}"
        )
    if (first != second).any():
        raise ContractViolation(
            f"{_name(policy)}: domain_scores answers otherwise the second time, for {needs}"
        )


def _check_nodes(policy: object, engine: Engine, needs: Needs) -> None:
    table = engine.state.table
    some = np.arange(0, table.height, 2, dtype=np.int64)
    everything, few = TableView(table), TableView(table, some)
    refused: NDArray[np.bool_] = np.zeros(table.height, dtype=np.bool_)
    if isinstance(policy, spi.Filter):
        mask = _steady(policy, lambda view: policy.filter(needs, view), everything, few, some, np.bool_)
        if mask is not None:
            refused |= ~mask
    if isinstance(policy, spi.Capacity):
        count = _steady(policy, lambda view: policy.capacity(needs, view), everything, few, some, np.integer)
        if count is not None:
            if (count < 0).any():
                raise ContractViolation(f"{_name(policy)}: a capacity is at least 0, for {needs}")
            refused |= count == 0
    if isinstance(policy, spi.NodeBlockers) and not isinstance(policy, spi.Domain):
        blocked = np.zeros(table.height, dtype=np.bool_)
        for blocker in policy.blockers(needs, everything):
            blocked |= blocker.blocked
        if (blocked != refused).any():
            raise ContractViolation(f"{_name(policy)}: findings and refusals differ, for {needs}")
    if isinstance(policy, spi.Score):
        _check_score(policy, engine, needs, (everything, few, some))


def _check_score(
    policy: spi.Score, engine: Engine, needs: Needs, views: tuple[TableView, TableView, NDArray[np.int64]]
) -> None:
    everything, few, some = views
    score = _steady(policy, lambda view: policy.score(needs, view), everything, few, some, np.floating)
    if score is None:
        return
    if not np.isfinite(score).all() or (score < 0).any() or (score > 100).any():
        raise ContractViolation(f"{_name(policy)}: scores are from 0 to 100, for {needs}")
    trend = policy.trend(needs)
    if trend is spi.Trend.ANY or policy.footprint is spi.Footprint.STATIC:
        return
    before = score.copy()
    for row in range(engine.state.table.height):
        node = engine.state.table.names[row]
        task = Task(f"ns/more-{row}", f"more-{row}", "", needs, state=TaskState.RUNNING, node=node)
        engine.apply([TaskUpserted(task)])
    after = policy.score(needs, TableView(engine.state.table))
    if after is None or ((after - before) * int(trend) < -1e-9).any():
        raise ContractViolation(f"{_name(policy)}: scores do not move as its trend says, for {needs}")


def _steady(
    policy: object,
    ask: _Ask,
    everything: TableView,
    few: TableView,
    some: NDArray[np.int64],
    kind: type[Any],
) -> Any:
    """The answer on all nodes; twice the same, and the same on some of them."""
    first, again, part = ask(everything), ask(everything), ask(few)
    if first is None:
        if again is not None or part is not None:
            raise ContractViolation(f"{_name(policy)}: once an answer, once none, to the same question")
        return None
    if not isinstance(first, np.ndarray) or first.shape != (everything.size,):
        raise ContractViolation(f"{_name(policy)}: the answer has one entry per node of the view")
    if not np.issubdtype(first.dtype, kind):
        raise ContractViolation(f"{_name(policy)}: the answer is of {first.dtype}, not of {kind.__name__}")
    if not np.array_equal(first, again):
        raise ContractViolation(f"{_name(policy)}: two answers to the same question")
    if part is None or not np.array_equal(first[some], part):
        raise ContractViolation(
            f"{_name(policy)}: some nodes are judged otherwise when they are asked about alone"
        )
    return first


def _check_admits(policy: spi.Admit, engine: Engine, needs: Needs) -> None:
    queue = engine.state.queues.get("queue")
    step = spi.StepView(Group("ns/group", queue="queue"), dict(needs.request), 1, needs=(needs,))
    nodes = TableView(engine.state.table)
    first = policy.admits(step, queue.path, nodes)
    if first != policy.admits(step, queue.path, nodes):
        raise ContractViolation(f"{_name(policy)}: two answers to the same question")
    if first is not None and not isinstance(first, spi.Rejection):
        raise ContractViolation(f"{_name(policy)}: a refusal is a Refusal, not {first!r}")


def _check_keys(policy: object, keys: Sequence[Any]) -> None:
    try:
        sorted(keys)
    except TypeError as error:
        raise ContractViolation(f"{_name(policy)}: keys cannot be put in order: {error}") from error


# ---------------------------------------------------------------------- clusters


def _cluster(random: _Random) -> Engine:
    """Nodes of several kinds, some of them partly used, cordoned or not ready."""
    engine = Engine()
    for n in range(int(random.integers(1, 9))):
        gpus = int(random.choice([0, 1, 4, 8]))
        amounts = {"cpu": 16_000, "memory": 64 * GIB, "pods": 20}
        if gpus:
            amounts[GPU] = gpus * 1000
        labels = {"kubernetes.io/hostname": f"n{n}", "zone": str(random.choice(["a", "b"]))}
        state = random.random()
        node = Node(f"n{n}", amounts, labels, unschedulable=bool(state < 0.1), ready=bool(state < 0.9))
        engine.apply([NodeUpserted(node)])
        for at in range(int(random.integers(0, 3))):
            request = {"cpu": 1000} | ({GPU: 1000} if at < gpus else {})
            used = Needs(request=tuple(sorted(request.items())))
            task = Task(f"ns/t{n}-{at}", f"t{n}-{at}", "", used, state=TaskState.RUNNING, node=f"n{n}")
            engine.apply([TaskUpserted(task)])
    return engine


def _needs(random: _Random, labels: Sequence[str]) -> Needs:
    request = {"cpu": int(random.integers(0, 4)) * 500, GPU: int(random.integers(0, 3)) * 1000}
    told = {key: str(random.choice(["", "low", "high", "a"])) for key in labels if random.random() < 0.7}
    return Needs(
        request=tuple(sorted((name, units) for name, units in request.items() if units)),
        labels=tuple(sorted(told.items())),
    )


def _task(n: int, needs: Needs, random: _Random) -> Task:
    return Task(
        f"ns/x-{n}",
        f"x-{n}",
        "ns/group",
        needs,
        role=str(random.choice(["", "worker"])),
        index=n,
        priority=int(random.integers(0, 3)),
    )


def _name(policy: object) -> str:
    return f"{type(policy).__name__} ({getattr(policy, 'name', '?')})"
