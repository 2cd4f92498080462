"""Moves in any cluster stay within the allowance, move no pod twice in one plan, and
can be executed.

No node is overcommitted.
"""

from __future__ import annotations

from collections import Counter

from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windlass.engine.deltas import Delta, GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.plugins.queues.protection import MOVABLE
from windlass.sim.defragmentation.defragment import Defrag
from windlass.sim.defragmentation.defragment_plan import plan
from windlass.sim.traces.openb import OpenbNode, OpenbPod
from windlass.spi.objects import Group, Queue, Task, TaskState
from windlass.spi.victims import Preemption, PreemptionDenied, PreemptionTerms
from windlass_lab.packing.packing import QUEUE, DefragRun, PackRun, needs_of, node_of
from windlass_lab.packing.packing_metrics import Placed
from windlass_lab.packing.published_policies import BestFit, TightestCard

SOME = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
PARTS = (810, 650, 590, 550, 470, 460, 370, 350, 320, 280, 230, 220, 160)
"""Shares of a device, most of them as they occur in OpenB, so that rings are found."""

nodes = st.lists(
    st.builds(
        lambda cpu, cards, model: OpenbNode("n", cpu, 65536, cards, model),
        st.sampled_from((8000, 16000, 32000)),
        st.sampled_from((1, 1, 2)),
        st.sampled_from(("T4", "V100")),
    ),
    min_size=3,
    max_size=6,
)
pods = st.lists(
    st.builds(
        lambda cpu, memory, ask, models: OpenbPod("p", cpu * 1000, memory * 1024, ask[0], ask[1], models),
        st.integers(0, 4),
        st.integers(1, 6),
        st.one_of(
            *[st.tuples(st.just(1), st.sampled_from(PARTS))] * 6,
            st.sampled_from(((0, 0), (1, 1000), (2, 1000))),
        ),
        st.sampled_from(((), (), (), (), (), ("T4",))),
    ),
    min_size=10,
    max_size=26,
)
allowances = st.sampled_from((0.02, 0.3, 1.0))


class Watched(Defrag):
    """``proposed``: the groups for which there were moves."""

    def __init__(self, part: float) -> None:
        super().__init__(part)
        self.proposed: list[str] = []

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        found = super().preemption_terms(preemption)
        if isinstance(found, PreemptionTerms):
            self.proposed.append(preemption.group.key)
        return found


class Book:
    """Nodes of pods, tracked from the placements alone."""

    def __init__(self, of: list[OpenbNode], coming: list[OpenbPod]) -> None:
        self.of = of
        self.coming = coming
        self.seats: dict[int, Placed] = {}

    def check(self) -> None:
        for at, node in enumerate(self.of):
            there = [(self.coming[pod], cards) for pod, (row, cards) in self.seats.items() if row == at]
            assert sum(pod.cpu_milli for pod, _ in there) <= node.cpu_milli
            assert sum(pod.memory_mib for pod, _ in there) <= node.memory_mib
            taken: Counter[int] = Counter()
            for pod, cards in there:
                assert not pod.gpu_models or not pod.gpus or node.model in pod.gpu_models
                taken.update(dict.fromkeys(cards, pod.gpu_milli))
            assert max(taken.values(), default=0) <= 1000
            assert len(taken) + sum(pod.gpus for pod, cards in there if not cards) <= node.gpus


@SOME
@given(nodes, pods, allowances)
def test_moves_for_whoever_comes(of: list[OpenbNode], coming: list[OpenbPod], part: float) -> None:
    defrag = Watched(part)
    run = DefragRun(of, [BestFit(), TightestCard()], defrag)
    run.play(coming)
    book = Book(of, coming)
    running = moved = 0
    for number, pod in enumerate(coming):
        movers = run.moved.get(number, [])
        assert len({who for who, _ in movers}) == len(movers)
        cost = sum(coming[who].demand for who, _ in movers)
        moved += cost
        if cost:
            assert moved <= part * running
            assert cost <= defrag.price * pod.demand
        for who, place in movers:
            assert place != book.seats[who]
            book.seats[who] = place
        if number in run.placed:
            book.seats[number] = run.placed[number]
            running += pod.demand
        book.check()
    assert set(book.seats) == set(run.placed)
    assert defrag.proposed == [f"d/{number:07d}" for number in sorted(run.moved)]


@SOME
@given(nodes, pods, allowances)
def test_a_plan_of_moves(of: list[OpenbNode], coming: list[OpenbPod], part: float) -> None:
    run = PackRun(of, [BestFit(), TightestCard()])
    run.play(coming)
    told: list[Delta] = [QueueUpserted(Queue(QUEUE))]
    told += [NodeUpserted(node_of(at, node)) for at, node in enumerate(of)]
    names = [node_of(at, node).name for at, node in enumerate(of)]
    where: dict[str, str] = {}
    demand: dict[str, int] = {}
    room = {name: node.gpus * 1000 for name, node in zip(names, of, strict=True)}
    cpu = {name: node.cpu_milli for name, node in zip(names, of, strict=True)}
    asks: dict[str, int] = {}
    for number, (at, cards) in run.placed.items():
        key, pod = f"d/{number:07d}", coming[number]
        notes = {MOVABLE: "true"} if number % 4 else {}
        told.append(GroupUpserted(Group(key, QUEUE, uid=key, admitted=True, annotations=notes)))
        task = Task(
            key,
            key,
            key,
            needs_of(pod),
            state=TaskState.RUNNING,
            node=names[at],
            devices=cards,
            preemptible=True,
        )
        told.append(TaskUpserted(task))
        where[key], demand[key], asks[key] = names[at], pod.demand, pod.cpu_milli
    found = plan(told, 0.0, part)
    moves = [move for gain in found.gains for move in gain.moves]
    assert len({move.pod for move in moves}) == len(moves)
    assert all(int(move.pod[2:]) % 4 for move in moves)
    assert 1000 * found.moved_gpus <= part * sum(demand.values()) + 1e-6
    gained: Counter[str] = Counter()
    for gain in found.gains:
        for move in gain.moves:
            assert where[move.pod] == move.source
            where[move.pod] = move.target
        gained[gain.node] += round(1000 * gain.gpus)
        for name in names:
            there = [key for key, node in where.items() if node == name]
            assert sum(demand[key] for key in there) + gained[name] <= room[name]
            assert sum(asks[key] for key in there) <= cpu[name]
