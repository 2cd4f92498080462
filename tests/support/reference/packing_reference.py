"""Where pods that never leave go, by the published words and rounding of each policy (FGD, USENIX ATC 2023), in exact
fractions, one node at a time. Nothing of the engine or its plugins is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import exp, floor

from windlass.sim.traces.openb import OpenbNode, OpenbPod

MOST_CPU, MOST_GPU, CARD = 128_000, 8_000, 1_000
Typical = Sequence[tuple[tuple[int, int, int, tuple[str, ...]], int]]
"""CPU, thousandths of each card, cards and models of a kind of pods, and how many there are of it."""


@dataclass
class Host:
    node: OpenbNode
    cpu: int
    memory: int
    free: list[int]
    kinds: Counter[object] = field(default_factory=Counter)

    @staticmethod
    def of(node: OpenbNode) -> Host:
        return Host(node, node.cpu_milli, node.memory_mib, [CARD] * node.gpus)

    def takes(self, pod: OpenbPod) -> bool:
        enough = self.cpu >= pod.cpu_milli and self.memory >= pod.memory_mib
        allowed = not pod.gpus or not pod.gpu_models or self.node.model in pod.gpu_models
        return enough and allowed and sum(free >= pod.gpu_milli for free in self.free) >= pod.gpus

    def cards(self, pod: OpenbPod) -> list[int]:
        """The fullest card that takes a part; the first of the free ones."""
        if pod.gpu_milli < CARD and pod.gpus:
            return [min((free, at) for at, free in enumerate(self.free) if free >= pod.gpu_milli)[1]]
        return [at for at, free in enumerate(self.free) if free == CARD][: pod.gpus]

    def put(self, pod: OpenbPod, cards: Sequence[int], sign: int = 1) -> None:
        self.cpu -= sign * pod.cpu_milli
        self.memory -= sign * pod.memory_mib
        for card in cards:
            self.free[card] -= sign * pod.gpu_milli
        if pod.gpus:
            self.kinds[kind(pod)] += sign


def kind(pod: OpenbPod) -> object:
    return "part" if pod.gpu_milli < CARD else pod.gpus


def best_fit(context: Host, pod: OpenbPod) -> int:
    cpu, gpu = context.cpu - pod.cpu_milli, sum(context.free) - pod.demand
    return floor(100 * (1 - (Fraction(cpu, MOST_CPU) + Fraction(gpu, MOST_GPU)) / 2))


def dot_prod(context: Host, pod: OpenbPod) -> int:
    cpu = Fraction(context.cpu * pod.cpu_milli, MOST_CPU**2)
    return floor(100 * (1 - (cpu + Fraction(sum(context.free) * pod.demand, MOST_GPU**2)) / 2))


def gpu_packing(context: Host, pod: OpenbPod) -> int:
    if not pod.gpus:
        return 0
    if all(free == CARD for free in context.free):
        return max(33 - len(context.free), len(context.free))
    cards = context.cards(pod)
    fresh = sum(context.free[card] == CARD for card in cards)
    return 50 - fresh if fresh else 100 - context.free[cards[0]] * 100 // CARD // 10


def gpu_clustering(context: Host, pod: OpenbPod) -> int:
    if not pod.gpus:
        return 0
    there = {one for one, count in context.kinds.items() if count}
    base = 25 if not there else 0 if kind(pod) not in there else 75 if len(there) == 1 else 50
    return base + 25 * (MOST_GPU - sum(context.free)) // MOST_GPU


def most_allocated(context: Host, pod: OpenbPod) -> int:
    node = context.node
    used = (
        (1, node.cpu_milli - context.cpu + pod.cpu_milli, node.cpu_milli),
        (1, node.memory_mib - context.memory + pod.memory_mib, node.memory_mib),
        (5, CARD * node.gpus - sum(context.free) + pod.demand, CARD * node.gpus),
    )
    return sum(weight * (100 * units // whole) for weight, units, whole in used) // 7


def typical(pods: Sequence[OpenbPod]) -> Typical:
    """The most frequent kinds until they are 95 % of all pods."""
    counts = Counter((p.cpu_milli, p.gpu_milli if p.gpus else 0, p.gpus, p.gpu_models) for p in pods)
    found, covered = list[tuple[tuple[int, int, int, tuple[str, ...]], int]](), 0
    for one, count in sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True):
        if 100 * covered >= 95 * len(pods):
            break
        found.append((one, count))
        covered += count
    return found


def fragments(context: Host, mix: Typical) -> Fraction:
    """What is free on the node and of no use to the mean pod."""
    total = 0
    for (cpu, milli, count, models), number in mix:
        fits = [free for free in context.free if free >= milli]
        runs = (
            count
            and context.cpu >= cpu
            and len(fits) >= count
            and (not models or context.node.model in models)
        )
        total += number * (sum(context.free) - (sum(fits) if runs else 0))
    return Fraction(total, sum(number for _, number in mix))


def descent(context: Host, pod: OpenbPod, mix: Typical) -> tuple[int, list[int]]:
    """FGD's points, and the cards that have them."""
    before = fragments(context, mix)

    def points(cards: Sequence[int]) -> int:
        context.put(pod, cards)
        gain = float((before - fragments(context, mix)) / CARD)
        context.put(pod, cards, -1)
        return floor(100 / (1 + exp(-gain)) + 1e-9)

    if not pod.gpus or pod.gpu_milli >= CARD:
        cards = context.cards(pod)
        return points(cards), cards
    found = [(points([at]), -at) for at, free in enumerate(context.free) if free >= pod.gpu_milli]
    return max(found)[0], [-max(found)[1]]


SCORES: dict[str, Callable[[Host, OpenbPod], int]] = {
    "bestfit": best_fit,
    "dotprod": dot_prod,
    "packing": gpu_packing,
    "clustering": gpu_clustering,
    "kube-most": most_allocated,
}


def place(policy: str, hosts: Sequence[Host], pod: OpenbPod, mix: Typical) -> str | None:
    """The node of the next pod, the first of the best; ``None`` where it fits nowhere."""
    best: tuple[int, Host, list[int]] | None = None
    for context in hosts:
        if not context.takes(pod):
            continue
        points, cards = (
            descent(context, pod, mix)
            if policy == "fgd"
            else (SCORES[policy](context, pod), context.cards(pod))
        )
        if best is None or points > best[0]:
            best = points, context, cards
    if best is None:
        return None
    best[1].put(pod, best[2])
    return best[1].node.name
