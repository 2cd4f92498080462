"""Votes of the extender in the middle of decisions; the client is tested elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from windlass.api.reasons import Reason
from windlass.engine.deltas import GroupUpserted
from windlass.engine.engine import Engine
from windlass.engine.queueing.permit import PAUSE_SECONDS
from windlass.plugins import registry
from windlass.plugins.volcano import extender, extender_votes
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.consent import Permit, ProposedDecision
from windlass.spi.extender import (
    ExtenderCall,
    ExtenderReply,
    ExtenderRequest,
    ExtenderUnavailable,
    TakesExtenderClient,
)
from windlass.spi.objects import Group
from windlass.spi.plugins import Rejection
from windlass.testing import Scene
from windlass.testing.scene import GPU, NAMESPACE

URL = {"extender.urlPrefix": "http://there/"}
Answer = ExtenderReply | ExtenderUnavailable
BUSY = ExtenderUnavailable("connection refused")


class Consultant:
    """Answers as told, by matter; all else with what does no harm."""

    def __init__(self) -> None:
        self.says: dict[ExtenderCall, Callable[[ExtenderRequest], Answer]] = {}
        self.heard: list[ExtenderRequest | str] = []

    def open(self) -> None:
        self.heard.append("open")

    def close(self) -> None:
        self.heard.append("close")

    def ask(self, request: ExtenderRequest) -> Answer:
        self.heard.append(request)
        return self.says.get(request.call, lambda asked: ExtenderReply(yes=asked.call is ExtenderCall.READY))(
            request
        )

    def asked(self, call: ExtenderCall) -> list[ExtenderRequest]:
        found = [each for each in self.heard if isinstance(each, ExtenderRequest) and each.call is call]
        self.heard = [each for each in self.heard if each not in found]
        return found


def scene_with(
    *matters: ExtenderCall,
    actions: str = "enqueue allocate preempt reclaim",
    beside: str = "priority predicates",
    flags: dict[str, bool] | None = None,
    **arguments: Any,
) -> tuple[Scene, Consultant]:
    given = URL | {f"extender.{call}Verb": f"v/{call}" for call in matters}
    given |= {f"extender.{name}": value for name, value in arguments.items()}
    options = [PluginOption(name) for name in beside.split()]
    options.append(PluginOption("extender", flags or {}, given))
    scene = Scene(config=SchedulerConfig(tuple(actions.split()), (PluginTier(tuple(options)),)))
    client = Consultant()
    for plugin in scene.engine.state.plugins.plugins:
        if isinstance(plugin, TakesExtenderClient):
            plugin.take_extender_client(client)
    return scene, client


def key(name: str) -> str:
    return f"{NAMESPACE}/{name}"


def waits(scene: Scene, name: str, **min_resources: int) -> None:
    """Let a group wait for its admission."""
    spec = Group(key(name), min_member=1, uid=key(name), min_resources={GPU: 1000, **min_resources})
    scene.engine.apply([GroupUpserted(spec)])


# ---------------------------------------------------------------------- when it is asked at all


@pytest.mark.parametrize(
    "arguments",
    [
        {"extender.preemptableVerb": "x"},
        URL,
        URL | {"extender.predicateVerb": "x", "extender.onSessionOpenVerb": "x"},
    ],
)
def test_without_an_address_or_a_verb_nothing_is_added(arguments: dict[str, str]) -> None:
    policies = SchedulerConfig(("allocate",), (PluginTier((PluginOption("extender", {}, arguments),)),))
    plugins, _ = registry.build(policies)
    assert not any(isinstance(plugin, TakesExtenderClient | Permit) for plugin in plugins)
    assert not Engine(None, plugins)._context.permit.is_active


def test_volcanos_arguments_are_read() -> None:
    endpoints = extender.endpoints_of(
        URL
        | {
            "extender.httpTimeout": "100ms",
            "extender.ignorable": "true",
            "extender.managedResources": [GPU, "x/y"],
            "extender.jobReadyVerb": "ready",
            "extender.predicateVerb": "filter",
        }
    )
    assert (endpoints.url, endpoints.timeout_seconds, endpoints.ignorable) == ("http://there", 0.1, True)
    assert endpoints.managed == {GPU, "x/y"}
    assert (endpoints.verbs, endpoints.predicate) == ({ExtenderCall.READY: "ready"}, "filter")
    assert extender.endpoints_of({"extender.managedResources": "a, b"}).managed == {"a", "b"}
    assert {f"extender.{call}Verb" for call in ExtenderCall} == {
        f"extender.{name}Verb"
        for name in [
            "onSessionOpen",
            "onSessionClose",
            "preemptable",
            "reclaimable",
            "queueOverused",
            "jobEnqueueable",
            "jobEnqueued",
            "jobReady",
            "allocateFunc",
            "deallocateFunc",
        ]
    }


def test_nobody_to_ask_is_no_opinion() -> None:
    scene, _ = scene_with(*ExtenderCall)
    for plugin in scene.engine.state.plugins.plugins:
        if isinstance(plugin, extender_votes.ExtenderContext):
            plugin._consultant = None
    scene.node("n1", gpu=1)
    scene.gang("a", gpu=1)
    scene.cycle()
    assert scene.where("a") == {"n1": 1}


def test_a_cycle_in_which_nothing_is_asked_is_no_round() -> None:
    scene, client = scene_with(ExtenderCall.READY)
    scene.node("n1", gpu=1)
    scene.cycle()
    assert client.heard == []
    scene.gang("a", gpu=1)
    scene.cycle()
    assert (client.heard[0], client.heard[-1]) == ("open", "close")
    assert client.heard.count("open") == client.heard.count("close") == 1


# ---------------------------------------------------------------------- victims


def crowded(**arguments: Any) -> tuple[Scene, Consultant]:
    """Two pods of low priority on all there is, and one of high priority that waits for one of them."""
    scene, client = scene_with(ExtenderCall.PREEMPTABLE, actions="allocate preempt", **arguments)
    scene.node("n1", gpu=2)
    scene.gang("low", pods=2, min_member=1, gpu=1)
    scene.cycle()
    assert scene.where("low") == {"n1": 2}
    scene.gang("high", gpu=1, priority=10)
    return scene, client


def test_only_those_that_it_names_go() -> None:
    scene, client = crowded()
    client.says[ExtenderCall.PREEMPTABLE] = lambda asked: ExtenderReply(
        1, named=frozenset({key("low-0"), "stranger"})
    )
    decision = scene.cycle()
    assert [eviction.task for eviction in decision.evictions] == [key("low-0")]
    (request,) = set(client.asked(ExtenderCall.PREEMPTABLE))
    assert request.task == key("high-0")
    assert set(request.others) == {key("low-0"), key("low-1")}


def test_whom_it_does_not_name_stays_and_it_is_asked_again_by_itself() -> None:
    scene, client = crowded()
    named: list[str] = []
    client.says[ExtenderCall.PREEMPTABLE] = lambda asked: ExtenderReply(1, named=frozenset(named))
    decision = scene.cycle()
    assert decision.evictions == ()
    assert decision.wake_at is not None
    assert decision.wake_at <= scene.now + extender_votes.AGAIN_SECONDS
    named.append(key("low-1"))
    assert scene.cycle(1.0).evictions == ()  # nothing has changed, and it is not time yet
    decision = scene.cycle(extender_votes.AGAIN_SECONDS - 1.0)
    assert [eviction.task for eviction in decision.evictions] == [key("low-1")]
    scene.cycle()
    assert scene.where("high") == {"n1": 1}


@pytest.mark.parametrize(("ignorable", "evicted"), [(True, 1), (False, 0)])
def test_what_fails_spares_everybody_or_counts_as_not_there(ignorable: bool, evicted: int) -> None:
    scene, client = crowded(ignorable=ignorable)
    client.says[ExtenderCall.PREEMPTABLE] = lambda asked: BUSY
    assert len(scene.cycle().evictions) == evicted


def test_status_zero_is_no_opinion() -> None:
    scene, client = crowded()
    client.says[ExtenderCall.PREEMPTABLE] = lambda asked: ExtenderReply(0)
    assert len(scene.cycle().evictions) == 1


def test_pods_without_its_resources_are_none_of_its_business() -> None:
    scene, client = crowded(managedResources=["example.com/fpga"])
    client.says[ExtenderCall.PREEMPTABLE] = lambda asked: ExtenderReply(1)
    assert len(scene.cycle().evictions) == 1
    assert client.asked(ExtenderCall.PREEMPTABLE) == []


@pytest.mark.parametrize("switch", [True, False])
def test_reclaiming_has_its_own_verb(switch: bool) -> None:
    scene, client = scene_with(
        ExtenderCall.RECLAIMABLE,
        actions="allocate reclaim",
        beside="gang proportion predicates",
        flags={"enableReclaimable": switch},
    )
    scene.queue("a")
    scene.queue("b")
    scene.node("n1", gpu=2)
    scene.gang("low", pods=2, min_member=0, gpu=1, queue="a")
    scene.cycle()
    client.says[ExtenderCall.RECLAIMABLE] = lambda asked: ExtenderReply(1, named=frozenset({key("low-1")}))
    scene.gang("claims", gpu=1, queue="b")
    evicted = [eviction.task for eviction in scene.cycle().evictions]
    if switch:
        assert evicted == [key("low-1")]
        assert {request.task for request in client.asked(ExtenderCall.RECLAIMABLE)} == {key("claims-0")}
    else:
        assert len(evicted) == 1
        assert client.asked(ExtenderCall.RECLAIMABLE) == []


# ---------------------------------------------------------------------- queues and
# admission


@pytest.mark.parametrize(
    ("answer", "ignorable", "runs"),
    [
        (ExtenderReply(), False, True),
        (ExtenderReply(yes=True), False, False),
        (BUSY, False, False),
        (BUSY, True, True),
    ],
)
def test_an_overused_queue_is_passed_over(answer: Answer, ignorable: bool, runs: bool) -> None:
    scene, client = scene_with(ExtenderCall.OVERUSED, ignorable=ignorable)
    client.says[ExtenderCall.OVERUSED] = lambda asked: answer
    scene.node("n1", gpu=4)
    for name in ("a", "b", "c"):
        scene.gang(name, gpu=1)
    scene.cycle()
    assert bool(scene.where("a")) is runs
    assert client.asked(ExtenderCall.OVERUSED) == [ExtenderRequest(ExtenderCall.OVERUSED, queue="default")]
    assert scene.code("a") == ("" if runs else Reason.WAITING_FOR_SHARE)
    assert client.asked(ExtenderCall.OVERUSED) == []  # explanations send no requests
    client.says[ExtenderCall.OVERUSED] = lambda asked: ExtenderReply()
    scene.cycle(extender_votes.AGAIN_SECONDS)
    assert scene.where("a") == {"n1": 1}


def test_every_group_is_judged_for_itself() -> None:
    scene, client = scene_with(ExtenderCall.ENQUEUEABLE, ExtenderCall.ENQUEUED)
    client.says[ExtenderCall.ENQUEUEABLE] = lambda asked: ExtenderReply(
        -1 if asked.group == key("a") else 1, rejection="no"
    )
    scene.node("n1", gpu=4)
    for name in ("a", "b"):
        waits(scene, name)
    statuses = {status.group: status for status in scene.cycle().groups}
    assert (statuses[key("a")].admitted, statuses[key("b")].admitted) == (False, True)
    explanation = statuses[key("a")].explanation
    assert explanation is not None
    assert explanation.code is Reason.REFUSED_BY_EXTENDER
    assert "it does not admit the group: no" in explanation.message
    assert [request.group for request in client.asked(ExtenderCall.ENQUEUED)] == [key("b")]
    client.says[ExtenderCall.ENQUEUEABLE] = lambda asked: ExtenderReply(0)
    statuses = {status.group: status for status in scene.cycle(extender_votes.AGAIN_SECONDS).groups}
    assert statuses[key("a")].admitted


@pytest.mark.parametrize("ignorable", [True, False])
def test_who_cannot_be_asked_about_is_let_in_only_if_that_does_not_matter(ignorable: bool) -> None:
    scene, client = scene_with(ExtenderCall.ENQUEUEABLE, ignorable=ignorable)
    client.says[ExtenderCall.ENQUEUEABLE] = lambda asked: BUSY
    waits(scene, "a")
    (status,) = [status for status in scene.cycle().groups if status.group == key("a")]
    assert status.admitted is ignorable
    assert ignorable or "connection refused" in status.explanation.message  # type: ignore[union-attr]


# ---------------------------------------------------------------------- start


def test_a_gang_starts_when_it_says_so() -> None:
    scene, client = scene_with(ExtenderCall.READY)
    ready: list[str] = []
    client.says[ExtenderCall.READY] = lambda asked: ExtenderReply(
        yes=asked.group in ready, rejection="too early"
    )
    scene.node("n1", gpu=4)
    scene.gang("a", pods=2, gpu=1)
    scene.gang("b", pods=2, gpu=1)
    ready.append(key("b"))
    decision = scene.cycle()
    assert (scene.where("a"), scene.where("b")) == ({}, {"n1": 2})
    assert scene.code("a") == Reason.REFUSED_BY_EXTENDER
    assert "it does not permit the start: too early" in scene.message("a")
    asked = {request.group: request for request in client.asked(ExtenderCall.READY)}
    assert dict(asked[key("a")].placements) == {key("a-0"): "n1", key("a-1"): "n1"}
    assert decision.wake_at == scene.now + PAUSE_SECONDS
    again = Engine.load(scene.engine.dump(), registry.build(SchedulerConfig())[0])
    told = again.explain(key("a"), scene.now)
    assert told is not None
    assert told.code is Reason.REFUSED_BY_EXTENDER
    ready.append(key("a"))
    scene.cycle(PAUSE_SECONDS / 2)
    assert scene.where("a") == {}
    scene.cycle(PAUSE_SECONDS / 2)
    assert scene.where("a") == {"n1": 2}
    assert scene.code("a") == ""


@pytest.mark.parametrize("ignorable", [True, False])
def test_a_gang_about_which_nobody_can_be_asked(ignorable: bool) -> None:
    scene, client = scene_with(ExtenderCall.READY, ignorable=ignorable)
    client.says[ExtenderCall.READY] = lambda asked: BUSY
    scene.node("n1", gpu=4)
    scene.gang("a", gpu=1)
    scene.cycle()
    assert bool(scene.where("a")) is ignorable


def test_who_is_placed_and_who_has_to_go_is_told() -> None:
    scene, client = scene_with(ExtenderCall.ALLOCATE, ExtenderCall.DEALLOCATE, actions="allocate preempt")
    scene.node("n1", gpu=1)
    scene.gang("low", gpu=1)
    scene.cycle()
    assert client.asked(ExtenderCall.ALLOCATE) == [
        ExtenderRequest(ExtenderCall.ALLOCATE, task=key("low-0"), placements=((key("low-0"), "n1"),))
    ]
    scene.gang("high", gpu=1, priority=5)
    scene.cycle()
    assert [request.task for request in client.asked(ExtenderCall.DEALLOCATE)] == [key("low-0")]
    assert client.asked(ExtenderCall.ALLOCATE) == []  # a promise is no placement
    scene.cycle()
    assert [request.task for request in client.asked(ExtenderCall.ALLOCATE)] == [key("high-0")]


@pytest.mark.parametrize("answer", [ExtenderReply(rejection="full"), BUSY])
def test_a_refused_placement_takes_those_before_it_back(answer: Answer) -> None:
    scene, client = scene_with(ExtenderCall.ALLOCATE, ExtenderCall.DEALLOCATE)
    client.says[ExtenderCall.ALLOCATE] = lambda asked: answer if asked.task == key("a-1") else ExtenderReply()
    scene.node("n1", gpu=2)
    scene.gang("a", pods=2, gpu=1)
    scene.cycle()
    assert scene.where("a") == {}
    assert [request.task for request in client.asked(ExtenderCall.DEALLOCATE)] == [key("a-0")]
    assert ("full" if isinstance(answer, ExtenderReply) else "connection refused") in scene.message("a")


def test_a_failing_word_of_a_placement_does_no_harm_where_that_is_ignorable() -> None:
    scene, client = scene_with(ExtenderCall.ALLOCATE, ignorable=True)
    client.says[ExtenderCall.ALLOCATE] = lambda asked: BUSY
    scene.node("n1", gpu=2)
    scene.gang("a", gpu=1)
    scene.cycle()
    assert scene.where("a") == {"n1": 1}


def test_a_round_whose_time_is_up_goes_on_in_the_next_cycle() -> None:
    scene, client = scene_with(ExtenderCall.ALLOCATE)
    left = [2]

    def until_the_time_is_up(asked: ExtenderRequest) -> Answer:
        left[0] -= 1
        return ExtenderReply() if left[0] >= 0 else ExtenderUnavailable("the time is up", later=True)

    client.says[ExtenderCall.ALLOCATE] = until_the_time_is_up
    scene.node("n1", gpu=8)
    for n in range(5):
        scene.gang(f"g{n}", gpu=1)
    placed = []
    for _ in range(3):
        left[0] = 2
        decision = scene.cycle()
        placed.append(len(decision.binds))
        if sum(placed) < 5:
            assert decision.wake_at == scene.now
    assert placed == [2, 2, 1]


def test_answers_of_a_round_that_was_cut_short_are_kept_for_the_next() -> None:
    scene, client = scene_with(ExtenderCall.ENQUEUEABLE)
    asked_for: list[str] = []
    left = [1]

    def until_the_time_is_up(asked: ExtenderRequest) -> Answer:
        left[0] -= 1
        if left[0] < 0:
            return ExtenderUnavailable("the time is up", later=True)
        asked_for.append(asked.group)
        return ExtenderReply(1)

    client.says[ExtenderCall.ENQUEUEABLE] = until_the_time_is_up
    for name in ("a", "b", "c"):
        waits(scene, name)
    for _ in range(3):
        left[0] = 1
        scene.cycle()
    assert asked_for == [key("a"), key("b"), key("c")]
    assert scene.engine.state.gate.admitted == {key("a"), key("b"), key("c")}


class Other:
    """Another policy with a last word."""

    name = "other"

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.seen: list[str] = []

    def permit(self, outcome: ProposedDecision) -> Rejection | None:
        self.seen.append("asked")
        return Rejection(Reason.ON_HOLD, detail="other") if self.refuses else None

    def withdrawn(self, outcome: ProposedDecision) -> None:
        self.seen.append("withdrawn")


def test_who_agreed_is_told_when_somebody_after_him_refuses() -> None:
    first, last = Other(refuses=False), Other(refuses=True)
    scene = Scene(first, last)
    scene.node("n1", gpu=1)
    scene.gang("a", gpu=1)
    scene.cycle()
    assert scene.where("a") == {}
    assert (first.seen, last.seen) == (["asked", "withdrawn"], ["asked"])
    assert scene.code("a") == Reason.ON_HOLD
