"""The extender's word in the middle of decisions, as the engine takes it; who reaches it is another matter."""

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
from windlass.spi.configuration import PluginOption, SchedulerConfig, Tier
from windlass.spi.consent import Consents, Outcome
from windlass.spi.extender import Matter, NoReply, Question, Reply, TakesConsultant
from windlass.spi.objects import Group
from windlass.spi.plugins import Refusal
from windlass.testing import Scene
from windlass.testing.scene import GPU, NAMESPACE

URL = {"extender.urlPrefix": "http://there/"}
Answer = Reply | NoReply
BUSY = NoReply("nobody there")


class Consultant:
    """Answers as told, by matter; all else with what does no harm."""

    def __init__(self) -> None:
        self.says: dict[Matter, Callable[[Question], Answer]] = {}
        self.heard: list[Question | str] = []

    def open(self) -> None:
        self.heard.append("open")

    def close(self) -> None:
        self.heard.append("close")

    def ask(self, question: Question) -> Answer:
        self.heard.append(question)
        return self.says.get(question.matter, lambda asked: Reply(yes=asked.matter is Matter.READY))(question)

    def asked(self, matter: Matter) -> list[Question]:
        found = [each for each in self.heard if isinstance(each, Question) and each.matter is matter]
        self.heard = [each for each in self.heard if each not in found]
        return found


def scene_with(
    *matters: Matter,
    actions: str = "enqueue allocate preempt reclaim",
    beside: str = "priority predicates",
    flags: dict[str, bool] | None = None,
    **arguments: Any,
) -> tuple[Scene, Consultant]:
    given = URL | {f"extender.{matter}Verb": f"v/{matter}" for matter in matters}
    given |= {f"extender.{name}": value for name, value in arguments.items()}
    options = [PluginOption(name) for name in beside.split()]
    options.append(PluginOption("extender", flags or {}, given))
    scene = Scene(config=SchedulerConfig(tuple(actions.split()), (Tier(tuple(options)),)))
    consultant = Consultant()
    for plugin in scene.engine.world.policies.plugins:
        if isinstance(plugin, TakesConsultant):
            plugin.take_consultant(consultant)
    return scene, consultant


def key(name: str) -> str:
    return f"{NAMESPACE}/{name}"


def waits(scene: Scene, name: str, **min_resources: int) -> None:
    """A group that asks to be let in."""
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
    policies = SchedulerConfig(("allocate",), (Tier((PluginOption("extender", {}, arguments),)),))
    plugins, _ = registry.build(policies)
    assert not any(isinstance(plugin, TakesConsultant | Consents) for plugin in plugins)
    assert not Engine(None, plugins)._machinery.consent.asked


def test_volcanos_arguments_are_read() -> None:
    hooks = extender.hooks_of(
        URL
        | {
            "extender.httpTimeout": "100ms",
            "extender.ignorable": "true",
            "extender.managedResources": [GPU, "x/y"],
            "extender.jobReadyVerb": "ready",
            "extender.predicateVerb": "filter",
        }
    )
    assert (hooks.url, hooks.timeout_seconds, hooks.ignorable) == ("http://there", 0.1, True)
    assert hooks.managed == {GPU, "x/y"}
    assert (hooks.verbs, hooks.predicate) == ({Matter.READY: "ready"}, "filter")
    assert extender.hooks_of({"extender.managedResources": "a, b"}).managed == {"a", "b"}
    assert {f"extender.{matter}Verb" for matter in Matter} == {
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
    scene, _ = scene_with(*Matter)
    for plugin in scene.engine.world.policies.plugins:
        if isinstance(plugin, extender_votes.Desk):
            plugin._consultant = None
    scene.node("n1", gpu=1)
    scene.gang("a", gpu=1)
    scene.cycle()
    assert scene.where("a") == {"n1": 1}


def test_a_cycle_in_which_nothing_is_asked_is_no_round() -> None:
    scene, consultant = scene_with(Matter.READY)
    scene.node("n1", gpu=1)
    scene.cycle()
    assert consultant.heard == []
    scene.gang("a", gpu=1)
    scene.cycle()
    assert (consultant.heard[0], consultant.heard[-1]) == ("open", "close")
    assert consultant.heard.count("open") == consultant.heard.count("close") == 1


# ---------------------------------------------------------------------- who may go


def crowded(**arguments: Any) -> tuple[Scene, Consultant]:
    """Two pods of low priority on all there is, and one of high priority that waits for one of them."""
    scene, consultant = scene_with(Matter.PREEMPTABLE, actions="allocate preempt", **arguments)
    scene.node("n1", gpu=2)
    scene.gang("low", pods=2, min_member=1, gpu=1)
    scene.cycle()
    assert scene.where("low") == {"n1": 2}
    scene.gang("high", gpu=1, priority=10)
    return scene, consultant


def test_only_those_that_it_names_go() -> None:
    scene, consultant = crowded()
    consultant.says[Matter.PREEMPTABLE] = lambda asked: Reply(1, named=frozenset({key("low-0"), "stranger"}))
    decision = scene.cycle()
    assert [eviction.task for eviction in decision.evictions] == [key("low-0")]
    (question,) = set(consultant.asked(Matter.PREEMPTABLE))
    assert question.task == key("high-0")
    assert set(question.others) == {key("low-0"), key("low-1")}


def test_whom_it_does_not_name_stays_and_it_is_asked_again_by_itself() -> None:
    scene, consultant = crowded()
    named: list[str] = []
    consultant.says[Matter.PREEMPTABLE] = lambda asked: Reply(1, named=frozenset(named))
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
    scene, consultant = crowded(ignorable=ignorable)
    consultant.says[Matter.PREEMPTABLE] = lambda asked: BUSY
    assert len(scene.cycle().evictions) == evicted


def test_status_zero_is_no_opinion() -> None:
    scene, consultant = crowded()
    consultant.says[Matter.PREEMPTABLE] = lambda asked: Reply(0)
    assert len(scene.cycle().evictions) == 1


def test_pods_without_its_resources_are_none_of_its_business() -> None:
    scene, consultant = crowded(managedResources=["example.com/fpga"])
    consultant.says[Matter.PREEMPTABLE] = lambda asked: Reply(1)
    assert len(scene.cycle().evictions) == 1
    assert consultant.asked(Matter.PREEMPTABLE) == []


@pytest.mark.parametrize("switch", [True, False])
def test_reclaiming_has_its_own_verb(switch: bool) -> None:
    scene, consultant = scene_with(
        Matter.RECLAIMABLE,
        actions="allocate reclaim",
        beside="gang proportion predicates",
        flags={"enableReclaimable": switch},
    )
    scene.queue("a")
    scene.queue("b")
    scene.node("n1", gpu=2)
    scene.gang("low", pods=2, min_member=0, gpu=1, queue="a")
    scene.cycle()
    consultant.says[Matter.RECLAIMABLE] = lambda asked: Reply(1, named=frozenset({key("low-1")}))
    scene.gang("claims", gpu=1, queue="b")
    evicted = [eviction.task for eviction in scene.cycle().evictions]
    if switch:
        assert evicted == [key("low-1")]
        assert {question.task for question in consultant.asked(Matter.RECLAIMABLE)} == {key("claims-0")}
    else:
        assert len(evicted) == 1
        assert consultant.asked(Matter.RECLAIMABLE) == []


# ---------------------------------------------------------------------- queues, and who is let in


@pytest.mark.parametrize(
    ("answer", "ignorable", "runs"),
    [(Reply(), False, True), (Reply(yes=True), False, False), (BUSY, False, False), (BUSY, True, True)],
)
def test_an_overused_queue_is_passed_over(answer: Answer, ignorable: bool, runs: bool) -> None:
    scene, consultant = scene_with(Matter.OVERUSED, ignorable=ignorable)
    consultant.says[Matter.OVERUSED] = lambda asked: answer
    scene.node("n1", gpu=4)
    for name in ("a", "b", "c"):
        scene.gang(name, gpu=1)
    scene.cycle()
    assert bool(scene.where("a")) is runs
    assert consultant.asked(Matter.OVERUSED) == [Question(Matter.OVERUSED, queue="default")]
    assert scene.code("a") == ("" if runs else Reason.WAITING_FOR_SHARE)
    assert consultant.asked(Matter.OVERUSED) == []  # who only wants to know asks nobody
    consultant.says[Matter.OVERUSED] = lambda asked: Reply()
    scene.cycle(extender_votes.AGAIN_SECONDS)
    assert scene.where("a") == {"n1": 1}


def test_every_group_is_judged_for_itself() -> None:
    scene, consultant = scene_with(Matter.ENQUEUEABLE, Matter.ENQUEUED)
    consultant.says[Matter.ENQUEUEABLE] = lambda asked: Reply(
        -1 if asked.group == key("a") else 1, refusal="no"
    )
    scene.node("n1", gpu=4)
    for name in ("a", "b"):
        waits(scene, name)
    statuses = {status.group: status for status in scene.cycle().groups}
    assert (statuses[key("a")].admitted, statuses[key("b")].admitted) == (False, True)
    explanation = statuses[key("a")].explanation
    assert explanation is not None
    assert explanation.code is Reason.REFUSED_BY_EXTENDER
    assert "it does not let it in: no" in explanation.message
    assert [question.group for question in consultant.asked(Matter.ENQUEUED)] == [key("b")]
    consultant.says[Matter.ENQUEUEABLE] = lambda asked: Reply(0)
    statuses = {status.group: status for status in scene.cycle(extender_votes.AGAIN_SECONDS).groups}
    assert statuses[key("a")].admitted


@pytest.mark.parametrize("ignorable", [True, False])
def test_who_cannot_be_asked_about_is_let_in_only_if_that_does_not_matter(ignorable: bool) -> None:
    scene, consultant = scene_with(Matter.ENQUEUEABLE, ignorable=ignorable)
    consultant.says[Matter.ENQUEUEABLE] = lambda asked: BUSY
    waits(scene, "a")
    (status,) = [status for status in scene.cycle().groups if status.group == key("a")]
    assert status.admitted is ignorable
    assert ignorable or "nobody there" in status.explanation.message  # type: ignore[union-attr]


# ---------------------------------------------------------------------- who starts


def test_a_gang_starts_when_it_says_so() -> None:
    scene, consultant = scene_with(Matter.READY)
    ready: list[str] = []
    consultant.says[Matter.READY] = lambda asked: Reply(yes=asked.group in ready, refusal="too early")
    scene.node("n1", gpu=4)
    scene.gang("a", pods=2, gpu=1)
    scene.gang("b", pods=2, gpu=1)
    ready.append(key("b"))
    decision = scene.cycle()
    assert (scene.where("a"), scene.where("b")) == ({}, {"n1": 2})
    assert scene.code("a") == Reason.REFUSED_BY_EXTENDER
    assert "it does not let it start: too early" in scene.message("a")
    asked = {question.group: question for question in consultant.asked(Matter.READY)}
    assert dict(asked[key("a")].seats) == {key("a-0"): "n1", key("a-1"): "n1"}
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
    scene, consultant = scene_with(Matter.READY, ignorable=ignorable)
    consultant.says[Matter.READY] = lambda asked: BUSY
    scene.node("n1", gpu=4)
    scene.gang("a", gpu=1)
    scene.cycle()
    assert bool(scene.where("a")) is ignorable


def test_who_is_placed_and_who_has_to_go_is_told() -> None:
    scene, consultant = scene_with(Matter.ALLOCATE, Matter.DEALLOCATE, actions="allocate preempt")
    scene.node("n1", gpu=1)
    scene.gang("low", gpu=1)
    scene.cycle()
    assert consultant.asked(Matter.ALLOCATE) == [
        Question(Matter.ALLOCATE, task=key("low-0"), seats=((key("low-0"), "n1"),))
    ]
    scene.gang("high", gpu=1, priority=5)
    scene.cycle()
    assert [question.task for question in consultant.asked(Matter.DEALLOCATE)] == [key("low-0")]
    assert consultant.asked(Matter.ALLOCATE) == []  # a promise is no placement
    scene.cycle()
    assert [question.task for question in consultant.asked(Matter.ALLOCATE)] == [key("high-0")]


@pytest.mark.parametrize("answer", [Reply(refusal="full"), BUSY])
def test_a_refused_placement_takes_those_before_it_back(answer: Answer) -> None:
    scene, consultant = scene_with(Matter.ALLOCATE, Matter.DEALLOCATE)
    consultant.says[Matter.ALLOCATE] = lambda asked: answer if asked.task == key("a-1") else Reply()
    scene.node("n1", gpu=2)
    scene.gang("a", pods=2, gpu=1)
    scene.cycle()
    assert scene.where("a") == {}
    assert [question.task for question in consultant.asked(Matter.DEALLOCATE)] == [key("a-0")]
    assert ("full" if isinstance(answer, Reply) else "nobody there") in scene.message("a")


def test_a_failing_word_of_a_placement_does_no_harm_where_that_is_ignorable() -> None:
    scene, consultant = scene_with(Matter.ALLOCATE, ignorable=True)
    consultant.says[Matter.ALLOCATE] = lambda asked: BUSY
    scene.node("n1", gpu=2)
    scene.gang("a", gpu=1)
    scene.cycle()
    assert scene.where("a") == {"n1": 1}


def test_a_round_whose_time_is_up_goes_on_in_the_next_cycle() -> None:
    scene, consultant = scene_with(Matter.ALLOCATE)
    left = [2]

    def until_the_time_is_up(asked: Question) -> Answer:
        left[0] -= 1
        return Reply() if left[0] >= 0 else NoReply("the time is up", later=True)

    consultant.says[Matter.ALLOCATE] = until_the_time_is_up
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
    scene, consultant = scene_with(Matter.ENQUEUEABLE)
    asked_for: list[str] = []
    left = [1]

    def until_the_time_is_up(asked: Question) -> Answer:
        left[0] -= 1
        if left[0] < 0:
            return NoReply("the time is up", later=True)
        asked_for.append(asked.group)
        return Reply(1)

    consultant.says[Matter.ENQUEUEABLE] = until_the_time_is_up
    for name in ("a", "b", "c"):
        waits(scene, name)
    for _ in range(3):
        left[0] = 1
        scene.cycle()
    assert asked_for == [key("a"), key("b"), key("c")]
    assert scene.engine.world.gate.let_in == {key("a"), key("b"), key("c")}


class Other:
    """Another policy with a last word."""

    name = "other"

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.seen: list[str] = []

    def consents(self, outcome: Outcome) -> Refusal | None:
        self.seen.append("asked")
        return Refusal(Reason.ON_HOLD, detail="other") if self.refuses else None

    def withdrawn(self, outcome: Outcome) -> None:
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
