"""The check of policies finds what is promised and not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from windlass.api.reasons import Reason
from windlass.plugins.defaults import default_plugins
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs, Task
from windlass.spi.plugins import Footprint, NodeBlocker, QueueView, Rejection, StepView, Trend
from windlass.testing import ContractViolation, check


@pytest.mark.parametrize("policy", default_plugins(), ids=lambda p: f"{type(p).__name__}-{p.name}")
def test_the_built_in_policies_keep_their_promises(policy: object) -> None:
    check(policy, trials=8)


class Named:
    name = "mine"


class Score(Named):
    footprint = Footprint.ROW
    weight = 1.0

    def trend(self, needs: Needs) -> Trend:
        return Trend.ANY

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        return np.full(nodes.size, 50.0)


class TooHigh(Score):
    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        return np.full(nodes.size, 101.0)


class WrongTrend(Score):
    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        return 100.0 / (1.0 + nodes.used("pods"))


class Positional(Score):
    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        return np.linspace(0.0, 100.0, nodes.size)


class Forgetful(Score):
    def __init__(self) -> None:
        self.asked = 0

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        self.asked += 1
        return np.full(nodes.size, float(self.asked % 7))


class Short(Named):
    footprint = Footprint.STATIC

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        return np.ones(1, dtype=np.bool_)


class WrongKind(Named):
    footprint = Footprint.STATIC

    def filter(self, needs: Needs, nodes: NodeView) -> Any:
        return np.ones(nodes.size)


class Sometimes(Named):
    footprint = Footprint.STATIC

    def __init__(self) -> None:
        self.asked = 0

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        self.asked += 1
        return None if self.asked % 2 else np.ones(nodes.size, dtype=np.bool_)


class Negative(Named):
    def capacity(self, needs: Needs, nodes: NodeView) -> IntArray | None:
        return nodes.available("cpu") * 0 - 1


class Silent(Named):
    footprint = Footprint.STATIC

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        return np.zeros(nodes.size, dtype=np.bool_)

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        return []


class Chatty(Named):
    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Any:
        return "no"


class Fickle(Named):
    def __init__(self) -> None:
        self.asked = 0

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
        self.asked += 1
        return Rejection(Reason.ON_HOLD) if self.asked % 2 else None


class Unordered(Named):
    def task_key(self, task: Task) -> object:
        return object()


class Nameless:
    def task_key(self, task: Task) -> int:
        return 0


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (TooHigh(), "from 0 to 100"),
        (WrongTrend(), "as its trend says"),
        (Positional(), "judged otherwise"),
        (Forgetful(), "two answers"),
        (Short(), "one entry per node"),
        (WrongKind(), "not of bool"),
        (Sometimes(), "once none"),
        (Negative(), "at least 0"),
        (Silent(), "findings and refusals differ"),
        (Chatty(), "a refusal is a Refusal"),
        (Fickle(), "two answers"),
        (Unordered(), "put in order"),
        (Nameless(), "has a name"),
        (Named(), "no extension point"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_broken_promise_is_found(policy: object, words: str) -> None:
    with pytest.raises(ContractViolation, match=words):
        check(policy)


def test_a_policy_that_keeps_all_of_them_passes() -> None:
    check(Score())


class Shortsighted(Named):
    def domain_scores(self, request: Any, domains: Any) -> FloatArray:
        return np.zeros(1)


class Fickle(Named):
    def __init__(self) -> None:
        self.asked = 0.0

    def domain_scores(self, request: Any, domains: Any) -> FloatArray:
        self.asked += 1
        return np.full(len(domains.allocatable("cpu")), self.asked)


@pytest.mark.parametrize(
    ("policy", "words"),
    [(Shortsighted(), "one number for each domain"), (Fickle(), "otherwise the second time")],
)
def test_what_is_said_of_domains(policy: object, words: str) -> None:
    with pytest.raises(ContractViolation, match=words):
        check(policy)
