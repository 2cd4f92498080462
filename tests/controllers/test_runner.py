"""The loop: dedup, back-off, conflicts, reading one's own writes, words that are said once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fakeapi import FakeApi, Words
from prometheus_client import CollectorRegistry
from vcjob_cluster import job

from windlass.api import errors
from windlass.api.resources import CONFIG_MAPS, POD_GROUPS, PODS, SECRETS, VOLCANO_JOBS, Resource
from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.client.informers import Informer, Route
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import NOTHING, Create, Delete, Effects, EmitEvent, Patch, Update, reference
from windlass.controllers.expectations import Expectations, RecordIndex, Written, identity
from windlass.controllers.metrics import ControllerMetrics
from windlass.controllers.runner import ReconcilerRunner, RunnerContext, WatchedCollection
from windlass.controllers.vcjob.controller import JobController

Json = dict[str, Any]


class Copier:
    """Makes a Secret ``copy-NAME`` for each ConfigMap: the smallest reconciler that writes."""

    name = "copier"

    def __init__(self, api: FakeApi, pause_seconds: float = 0.0) -> None:
        self.pause_seconds = pause_seconds
        self.maps: Informer[Json] = api.informer(CONFIG_MAPS)
        self.secrets: Informer[Json] = api.informer(SECRETS)
        self.seen: list[str] = []
        self.answer: Callable[[str], Effects] = self.copy
        self.busy: set[str] = set()

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self.maps, lambda m: [m["metadata"]["name"]]),
            WatchedCollection(self.secrets, self.keys_of_secret),
        )

    def keys_of_secret(self, secret: Json) -> list[str]:
        return [secret["metadata"]["name"].removeprefix("copy-")]

    def initial_keys(self) -> Iterable[str]:
        return ("first",)

    def copy(self, key: str) -> Effects:
        if f"default/{key}" not in self.maps.items or f"default/copy-{key}" in self.secrets.items:
            return NOTHING
        return Effects(stages=((Create(SECRETS, {"metadata": {"name": f"copy-{key}"}}),),))

    async def reconcile(self, key: str) -> Effects:
        assert key not in self.busy, "looked at twice at once"
        self.busy.add(key)
        await asyncio.sleep(0)
        self.busy.discard(key)
        self.seen.append(key)
        return self.answer(key)


@asynccontextmanager
async def running(
    api: FakeApi, reconciler: Any, words: Words | None = None, figures: CollectorRegistry | None = None
) -> AsyncIterator[ReconcilerRunner]:
    figures = figures or CollectorRegistry()
    context = RunnerContext(
        api,  # type: ignore[arg-type]
        words or Words(),
        api.clock,
        random.Random(1),
        ControllerMetrics(figures),
    )
    runner = ReconcilerRunner(reconciler, context)
    task = asyncio.ensure_future(runner.run())
    await settled(runner)
    try:
        yield runner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def settled(runner: ReconcilerRunner) -> None:
    for _ in range(200):
        await asyncio.sleep(0)
    assert runner.queue.idle


async def test_a_change_is_looked_at_and_carried_out() -> None:
    api = FakeApi()
    api.put(CONFIG_MAPS, {"metadata": {"name": "old"}})
    copier = Copier(api)
    async with running(api, copier) as runner:
        assert sorted(set(copier.seen)) == ["first", "old"]
        api.put(CONFIG_MAPS, {"metadata": {"name": "new"}})
        await settled(runner)
    assert sorted(s["metadata"]["name"] for s in api.objects(SECRETS)) == ["copy-new", "copy-old"]
    assert api.log.count(("create", "secrets", "default/copy-new")) == 1


async def test_nothing_is_looked_at_before_the_caches_show_ones_own_writes() -> None:
    api = FakeApi()
    copier = Copier(api)
    async with running(api, copier) as runner:
        api.put(CONFIG_MAPS, {"metadata": {"name": "a"}})
        api.lagging = True
        await settled(runner)
        looked = len(copier.seen)
        assert ("create", "secrets", "default/copy-a") in api.log
        for _ in range(3):
            runner.queue.add("a")
            await settled(runner)
        assert len(copier.seen) == looked
        api.lagging = False
        api.catch_up()
        await settled(runner)
        assert len(copier.seen) == looked + 1
    assert api.log.count(("create", "secrets", "default/copy-a")) == 1


async def test_a_write_that_is_never_seen_does_not_hold_a_key_for_ever() -> None:
    api = FakeApi()
    copier = Copier(api)
    async with running(api, copier) as runner:
        api.put(CONFIG_MAPS, {"metadata": {"name": "a"}})
        api.lagging = True
        await settled(runner)
        looked = copier.seen.count("a")
        for _ in range(17):
            await api.clock.advance(1)
            runner.queue.add("a")
            await settled(runner)
        assert copier.seen.count("a") > looked


async def test_a_write_that_was_undone_at_once_counts_as_seen() -> None:
    api = FakeApi()
    copier = Copier(api)
    async with running(api, copier) as runner:
        api.put(CONFIG_MAPS, {"metadata": {"name": "a"}})
        api.lagging = True
        await settled(runner)
        looked = copier.seen.count("a")
        api.remove(SECRETS, "default/copy-a")
        api.remove(CONFIG_MAPS, "default/a")
        api.lagging = False
        api.catch_up()
        await settled(runner)
        assert copier.seen.count("a") > looked


async def test_changes_during_the_rest_after_a_long_look_are_looked_at_together() -> None:
    api = FakeApi()
    copier = Copier(api)

    def look(key: str) -> Effects:
        api.clock.jump(0.05 if key == "big" else 0.001)
        return NOTHING

    copier.answer = look
    async with running(api, copier) as runner:
        for name in ("big", "small"):
            api.put(CONFIG_MAPS, {"metadata": {"name": name}})
            await settled(runner)
        for number in range(5):
            for name in ("big", "small"):
                api.change(CONFIG_MAPS, f"default/{name}", data={"n": str(number)})
            await settled(runner)
        assert (copier.seen.count("big"), copier.seen.count("small")) == (1, 6)
        await api.clock.advance(0.5)
        await settled(runner)
        assert copier.seen.count("big") == 2


async def test_an_object_deleted_before_the_response_to_its_write_counts_as_seen() -> None:
    api = FakeApi()
    copier = Copier(api)
    create = api.create

    async def create_slowly(resource: Resource, obj: Json, namespace: str | None = None) -> Json:
        response = await create(resource, obj, namespace)
        api.remove(SECRETS, f"default/{response['metadata']['name']}")  # its deletion arrives first
        return response

    api.create = create_slowly  # type: ignore[method-assign]
    copier.answer = lambda key: copier.copy(key) if copier.seen.count("a") < 2 else NOTHING
    async with running(api, copier) as runner:
        api.put(CONFIG_MAPS, {"metadata": {"name": "a"}})
        await settled(runner)
    assert copier.seen.count("a") == 2, "the key does not wait for the timeout of the expectation"


async def test_conflicts_are_tried_again_soon() -> None:
    api = FakeApi()
    api.put(CONFIG_MAPS, {"metadata": {"name": "a"}})
    stale = {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "999"}, "data": {"x": "1"}}
    copier = Copier(api)
    copier.answer = lambda key: (
        Effects(stages=((Update(CONFIG_MAPS, stale),),))
        if copier.seen.count("a") < 3 and key == "a"
        else NOTHING
    )
    words = Words()
    async with running(api, copier, words) as runner:
        for _ in range(4):
            await api.clock.advance(0.05)
            await settled(runner)
    assert copier.seen.count("a") == 3
    assert words.said == []


async def test_a_refusal_is_told_and_tried_ever_more_rarely() -> None:
    api = FakeApi()
    api.put(CONFIG_MAPS, {"metadata": {"name": "a"}})
    api.reject = lambda verb, resource, obj: (
        errors.forbidden(SECRETS, "copy-a", "exceeded quota") if resource == SECRETS else None
    )
    copier = Copier(api)
    about = reference(CONFIG_MAPS, api.objects(CONFIG_MAPS)[0])
    copier.answer = lambda key: Effects(copier.copy(key).stages, about=about)
    words = Words()
    async with running(api, copier, words) as runner:
        counts = []
        for _ in range(3):
            for _ in range(10):
                await api.clock.advance(1)
                await settled(runner)
            counts.append(copier.seen.count("a"))
    assert counts[0] >= 4
    assert counts[2] - counts[1] <= 1
    assert words.said == [
        ("a", "Warning", "FailedCreate", 'Error: secrets "copy-a" is forbidden: exceeded quota')
    ]


async def test_one_bad_object_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    api.put(CONFIG_MAPS, {"metadata": {"name": "bad"}})
    copier = Copier(api)

    def answer(key: str) -> Effects:
        if key == "bad":
            raise KeyError("spec")
        return copier.copy(key)

    copier.answer = answer
    async with running(api, copier) as runner:
        api.put(CONFIG_MAPS, {"metadata": {"name": "good"}})
        await settled(runner)
    assert ("create", "secrets", "default/copy-good") in api.log
    assert "copier: bad: reconciliation failed" in caplog.text
    assert "KeyError" in caplog.text


async def test_looking_again_after_a_while() -> None:
    api = FakeApi()
    copier = Copier(api)
    copier.answer = lambda key: Effects(requeue_after=30)
    async with running(api, copier) as runner:
        assert copier.seen == ["first"]
        await api.clock.advance(29)
        await settled(runner)
        assert copier.seen == ["first"]
        await api.clock.advance(1)
        await settled(runner)
        assert copier.seen == ["first", "first"]


async def test_a_pause_between_looks_that_write() -> None:
    api = FakeApi()
    copier = Copier(api, pause_seconds=0.5)
    async with running(api, copier) as runner:
        api.put(CONFIG_MAPS, {"metadata": {"name": "a"}})
        await settled(runner)
        looked = copier.seen.count("a")
        for number in range(5):
            api.change(CONFIG_MAPS, "default/a", data={"n": str(number)})
            await settled(runner)
        assert copier.seen.count("a") == looked
        await api.clock.advance(0.5)
        await settled(runner)
        assert copier.seen.count("a") == looked + 1


async def test_what_lasts_is_said_once_and_what_happens_each_time() -> None:
    api = FakeApi()
    copier = Copier(api)
    about = reference(CONFIG_MAPS, {"metadata": {"name": "x"}})
    lasting = EmitEvent(about, "Warning", "Missing", "it is missing", lasting=True)
    copier.answer = lambda key: Effects(events=(lasting, EmitEvent(about, "Normal", "Did", "it")))
    words = Words()
    async with running(api, copier, words) as runner:
        runner.queue.add("first")
        await settled(runner)
    assert words.reasons() == ["Missing", "Did", "Did"]


async def test_a_lagging_cache_restarts_no_job() -> None:
    """Pods were made and the status written; the caches show the status first, then the pods."""
    api = FakeApi()
    api.put(VOLCANO_JOBS, job(policies=[{"event": "PodEvicted", "action": "RestartJob"}]))
    controller = JobController(api, api, api.clock)  # type: ignore[arg-type]
    async with running(api, controller) as runner:
        (group,) = api.objects(POD_GROUPS)
        key = f"default/{group['metadata']['name']}"
        api.change(POD_GROUPS, key, status={"phase": "Inqueue"})
        api.lagging = True
        await settled(runner)
        assert len(api.objects(PODS)) == 2
        late = [entry for entry in api._late if entry[0] == VOLCANO_JOBS]
        api._late = [entry for entry in api._late if entry[0] != VOLCANO_JOBS]
        for resource, name, old, new in late:
            api._deliver(resource, name, old, new)
        runner.queue.add("default/train")
        await settled(runner)
        api.lagging = False
        api.catch_up()
        await settled(runner)
    (stored,) = api.objects(VOLCANO_JOBS)
    assert stored["status"].get("retryCount", 0) == 0
    assert stored["status"]["pending"] == 2
    assert [entry for entry in api.log if entry[0] == "delete"] == []


async def test_figures() -> None:
    api = FakeApi()
    api.put(CONFIG_MAPS, {"metadata": {"name": "a"}})
    api.put(CONFIG_MAPS, {"metadata": {"name": "b"}})
    api.reject = lambda verb, resource, obj: (
        errors.forbidden(SECRETS, "x", "no") if obj["metadata"].get("name") == "copy-b" else None
    )
    figures = CollectorRegistry()
    async with running(api, Copier(api), figures=figures):
        pass

    def value(name: str, **labels: str) -> float | None:
        return figures.get_sample_value(f"windlass_controller_{name}", {"controller": "copier", **labels})

    assert value("writes_total") == 1
    assert value("failures_total", kind="refused") == 1
    assert (value("looks_total") or 0) >= 3
    assert value("waiting_keys") == 0
    assert value("look_seconds_count") == 2


# The parts.


async def test_once_the_server_serves_again_what_failed_is_looked_at_soon() -> None:
    api = FakeApi()
    away = True

    class Blind(Copier):
        async def reconcile(self, key: str) -> Effects:
            self.seen.append(key)
            if away:
                raise Unreachable(UNREACHABLE, "gone")
            return NOTHING

    blind = Blind(api)
    async with running(api, blind) as runner:
        for key in "abc":
            runner.queue.add(key)
        api.outages.failed("GET")
        for _ in range(300):
            await api.clock.advance(0.25)
            await settled(runner)
        api.outages.failed("GET")
        away, before = False, len(blind.seen)
        api.outages.answered("GET", 200)
        for _ in range(5):
            await api.clock.advance(0.25)
            await settled(runner)
        assert sorted(blind.seen[before:]) == ["a", "b", "c", "first"]


async def test_stages_end_at_the_first_failure() -> None:
    api = FakeApi()
    api.reject = lambda verb, resource, obj: (
        errors.conflict(SECRETS, "b") if obj["metadata"].get("name") == "b" else None
    )
    effects = Effects(
        stages=(
            (Create(SECRETS, {"metadata": {"name": "a"}}), Create(SECRETS, {"metadata": {"name": "b"}})),
            (Create(SECRETS, {"metadata": {"name": "c"}}),),
        )
    )
    outcome = await EffectExecutor(api).perform(effects)  # type: ignore[arg-type]
    assert [write.key for write in outcome.written] == ["default/a"]
    assert [failure.conflict for failure in outcome.failures] == [True]
    assert [s["metadata"]["name"] for s in api.objects(SECRETS)] == ["a"]


def _owned(name: str, uid: str) -> Json:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid, "controller": True}
    return {"metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]}}


@pytest.mark.parametrize(("present", "fine"), [("mine", True), ("other", False), (None, False)])
async def test_what_is_there_already_counts_if_it_is_ours(present: str | None, fine: bool) -> None:
    api = FakeApi()
    api.put(SECRETS, _owned("a", present) if present else {"metadata": {"name": "a"}})
    outcome = await EffectExecutor(api).perform(Effects(stages=((Create(SECRETS, _owned("a", "mine")),),)))  # type: ignore[arg-type]
    assert bool(outcome.written) is fine
    assert [failure.refused for failure in outcome.failures] == ([] if fine else [True])


async def test_what_is_gone_already_counts_as_deleted() -> None:
    api = FakeApi()
    api.put(SECRETS, {"metadata": {"name": "again", "uid": "new"}})
    actions = (
        Delete(SECRETS, "gone", "default", "u"),
        Delete(SECRETS, "again", "default", "old"),
        Patch(SECRETS, "gone", {"data": {}}, "default"),
        Update(SECRETS, {"metadata": {"name": "gone", "namespace": "default"}}),
    )
    outcome = await EffectExecutor(api).perform(Effects(stages=(actions,)))  # type: ignore[arg-type]
    assert outcome.failures == ()
    assert len(api.objects(SECRETS)) == 1


@pytest.mark.parametrize("code", [409, 410, 500, 502, 504])
async def test_a_stray_no_is_no_deletion(code: int) -> None:
    """The object is there still: whoever wanted it gone has to look again, without any event."""
    api = FakeApi()
    api.put(SECRETS, {"metadata": {"name": "guide", "uid": "u"}})
    words = 'Operation cannot be fulfilled on secrets "guide": the object has been modified'
    troubles = [errors.failure(code, "Conflict" if code == 409 else "", words)]
    api.reject = lambda verb, *_: troubles.pop() if verb == "delete" and troubles else None
    delete = Effects(stages=((Delete(SECRETS, "guide", "default", "u"),),))
    async with running(api, Copier(api)) as runner:
        reconciler: Any = runner._reconciler
        reconciler.answer = lambda key: delete if key == "guide" and api.objects(SECRETS) else NOTHING
        runner.queue.add("guide")
        await settled(runner)
        for _ in range(20):
            await api.clock.advance(0.1)
            await settled(runner)
        assert not troubles
        assert api.objects(SECRETS) == []


async def test_a_patch_of_another_incarnation_is_a_conflict() -> None:
    api = FakeApi()
    api.put(SECRETS, {"metadata": {"name": "a", "uid": "new"}})
    outcome = await EffectExecutor(api).perform(  # type: ignore[arg-type]
        Effects(stages=((Patch(SECRETS, "a", {"data": {"x": "1"}}, "default", uid="old"),),))
    )
    assert [failure.conflict for failure in outcome.failures] == [True]


def test_index() -> None:
    api = FakeApi()
    informer = api.informer(SECRETS)
    index = RecordIndex(informer, lambda s: (s.get("data") or {}).values(), lambda s: identity(s).key)
    api.put(SECRETS, {"metadata": {"name": "a"}, "data": {"g": "one"}})
    api.put(SECRETS, {"metadata": {"name": "b"}, "data": {"g": "one"}})
    assert sorted(index.get("one")) == ["default/a", "default/b"]
    api.change(SECRETS, "default/a", data={"g": "two"})
    assert (list(index.get("one")), list(index.get("two"))) == (["default/b"], ["default/a"])
    api.remove(SECRETS, "default/a")
    assert list(index.get("two")) == []
    assert list(index.groups()) == ["one"]


@pytest.mark.parametrize(
    ("stored", "write", "kept"),
    [
        (None, Written(SECRETS, "default/a", "u", "5"), False),
        (("u", "4"), Written(SECRETS, "default/a", "u", "5"), False),
        (("u", "5"), Written(SECRETS, "default/a", "u", "5"), True),
        (("u", "12"), Written(SECRETS, "default/a", "u", "5"), True),
        (("v", "12"), Written(SECRETS, "default/a", "u", "5"), True),
        (("u", "4"), Written(SECRETS, "default/a", "u", "", deleted=True), False),
        (None, Written(SECRETS, "default/a", "u", "", deleted=True), True),
        (None, Written(SECRETS, "default/a", "u", "5", terminating=True), True),
        (("u", "4"), Written(SECRETS, "default/a", "u", "5", terminating=True), False),
        (("v", "1"), Written(SECRETS, "default/a", "u", "", deleted=True), True),
    ],
)
def test_ledger(stored: tuple[str, str] | None, write: Written, kept: bool) -> None:
    api = FakeApi()
    informer = api.informer(SECRETS)
    expectations = Expectations()
    expectations.follow(informer)
    if stored is not None:
        uid, version = stored
        informer.put(
            "default/a",
            {"metadata": {"name": "a", "namespace": "default", "uid": uid, "resourceVersion": version}},
        )
    expectations.expect("key", [write], 0.0)
    assert expectations.satisfied("other", 0.0)
    assert expectations.satisfied("key", 1.0) is kept
    assert expectations.satisfied("key", 100.0)


def test_last_write_to_an_object_counts() -> None:
    """An object that is patched and then deleted may be gone before its writes are expected."""
    api, expectations = FakeApi(), Expectations()
    expectations.follow(api.informer(SECRETS))
    writes = [
        Written(SECRETS, "default/a", "u", "5"),
        Written(SECRETS, "default/a", "u", "", deleted=True),
    ]
    expectations.expect("key", writes, 0.0)
    assert expectations.satisfied("key", 1.0)


def test_writes_to_what_is_not_followed_are_not_waited_for() -> None:
    expectations = Expectations()
    expectations.expect("key", [Written(_other(), "default/a", "u", "5")], 0.0)
    assert expectations.satisfied("key", 0.0)


def _other() -> Resource:
    return CONFIG_MAPS


async def test_the_number_of_workers_changes_while_it_runs() -> None:
    api = FakeApi()
    copier = Copier(api)
    most, now, gate = 0, 0, asyncio.Event()

    async def reconcile(_: str) -> Effects:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await gate.wait()
        now -= 1
        return NOTHING

    async with running(api, copier) as runner:
        copier.reconcile = reconcile  # type: ignore[method-assign]
        for workers in (7, 2, 5):
            runner.set_workers(workers)
            for _ in range(2):  # those that are one too many leave after one more key
                most, now = 0, 0
                gate.clear()
                for number in range(12):
                    runner.queue.add(f"key-{number}")
                for _ in range(50):
                    await asyncio.sleep(0)
                gate.set()
                await settled(runner)
            assert most == workers


async def test_an_index_follows_records_that_stay_move_and_leave() -> None:
    api = FakeApi()
    maps: Informer[Json] = api.informer(CONFIG_MAPS)
    index = RecordIndex(maps, lambda one: one["data"]["of"].split(), lambda one: one["metadata"]["name"])

    def shown() -> dict[str, dict[str, str]]:
        return {
            group: {name: one["data"]["n"] for name, one in index.get(group).items()}
            for group in index.groups()
        }

    def put(name: str, of: str, n: str) -> None:
        api.put(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"of": of, "n": n}})

    put("a", "x y", "1")
    put("b", "x", "1")
    put("a", "x y", "2")
    assert shown() == {"x": {"a": "2", "b": "1"}, "y": {"a": "2"}}
    put("a", "z", "3")
    assert shown() == {"x": {"b": "1"}, "z": {"a": "3"}}
    api.remove(CONFIG_MAPS, "default/b")
    assert shown() == {"z": {"a": "3"}}


async def test_a_routed_handler_is_told_of_its_records_only() -> None:
    api = FakeApi()
    maps: Informer[Json] = api.informer(CONFIG_MAPS)
    told: list[tuple[str, str, str]] = []
    value = lambda one: one.get("data", {}).get("kind", "")  # noqa: E731

    def listen(name: str, *values: str) -> None:
        maps.add_handler(
            lambda one: told.append((name, "add", value(one))),
            lambda old, new: told.append((name, value(old), value(new))),
            lambda one: told.append((name, "delete", value(one))),
            route=Route(value, frozenset(values)),
        )

    listen("x", "x")
    listen("x or y", "x", "y")
    api.put(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"kind": "z"}})
    assert told == []
    api.change(CONFIG_MAPS, "default/a", data={"kind": "x"})
    assert told == [("x", "z", "x"), ("x or y", "z", "x")]
    told.clear()
    api.change(CONFIG_MAPS, "default/a", data={"kind": "y"})
    assert sorted(told) == [("x", "x", "y"), ("x or y", "x", "y")], "each handler is told once"
    told.clear()
    listen("late", "y")
    api.remove(CONFIG_MAPS, "default/a")
    assert told == [("late", "add", "y"), ("x or y", "delete", "y"), ("late", "delete", "y")]
