"""Writing, reading and following, on a database in memory and on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from store_helpers import crash, drain, pod, thing

from windlass.api.selectors import FieldTerm, parse_labels
from windlass.kits.clock import FakeClock
from windlass.store import errors
from windlass.store.families import EVENTS, LEASES, MAIN, StoreOptions
from windlass.store.filters import StoreFilter, UnknownField
from windlass.store.records import restamp, version_of
from windlass.store.store import Store


@pytest.fixture
async def store(fake_clock: FakeClock) -> AsyncIterator[Store]:
    opened = Store.open(":memory:", clock=fake_clock)
    yield opened
    await opened.close()


async def test_create_assigns_a_version_and_keeps_the_object(store: Store) -> None:
    entry = await store.create("pods", "default", "a", pod("a", app="x"))
    assert entry.rv == store.rv == 2
    assert msgspec.json.decode(entry.data) == {
        "metadata": {"resourceVersion": "2", "name": "a", "namespace": "default", "labels": {"app": "x"}},
        "spec": {},
    }
    assert store.get("pods", "default", "a") is entry
    assert store.get("pods", "other", "a") is None


async def test_kind_and_version_are_not_stored(store: Store) -> None:
    entry = await store.create("pods", "default", "a", {"kind": "Pod", "apiVersion": "v1", **pod("a")})
    assert b"kind" not in entry.data
    assert b"apiVersion" not in entry.data


async def test_nothing_is_visible_before_the_commit(store: Store) -> None:
    future = store.create("pods", "default", "a", pod("a"))
    assert store.get("pods", "default", "a") is None
    assert store.rv == 1
    head = store.head("pods", "default", "a")
    assert head is not None
    assert head.rv == 2
    assert [entry.name for entry in store.heads("pods")] == ["a"]
    await future
    assert store.get("pods", "default", "a") is head


async def test_create_twice_conflicts_even_before_the_commit(store: Store) -> None:
    first = store.create("pods", "default", "a", pod("a"))
    with pytest.raises(errors.Exists):
        store.create("pods", "default", "a", pod("a"))
    await first


async def test_update_demands_the_expected_version(store: Store) -> None:
    entry = await store.create("pods", "default", "a", pod("a"))
    updated = store.update("pods", "default", "a", pod("a", app="y"), expected=entry.rv)
    with pytest.raises(errors.Conflict):
        store.update("pods", "default", "a", pod("a", app="z"), expected=entry.rv)
    assert (await updated).labels == {"app": "y"}
    with pytest.raises(errors.Missing):
        store.update("pods", "default", "b", pod("b"))


async def test_delete_frees_the_name_at_once(store: Store) -> None:
    await store.create("pods", "default", "a", pod("a"))
    gone = store.delete("pods", "default", "a")
    again = store.create("pods", "default", "a", pod("a"))
    with pytest.raises(errors.Conflict):
        store.delete("pods", "default", "a", expected=2)
    assert (await gone).rv == 3
    assert (await again).rv == 4
    assert version_of((await gone).data) == 3


async def test_many_writes_share_commits(store: Store) -> None:
    await asyncio.gather(*(store.create("pods", "default", f"p{n}", pod(f"p{n}")) for n in range(200)))
    assert store.count("pods") == 200
    assert store.commits < 20


async def test_select_is_ordered_and_filtered(store: Store) -> None:
    for name, namespace, node in (("b", "x", "n1"), ("a", "x", "n2"), ("a", "x-y", "n1"), ("c", "a", "n1")):
        await store.create("pods", namespace, name, pod(name, namespace, node=node, app=name))
    keys = [entry.key for entry in store.select("pods")]
    assert keys == sorted(keys) == ["a/c", "x-y/a", "x/a", "x/b"]
    assert [e.key for e in store.select("pods", StoreFilter("x"))] == ["x/a", "x/b"]
    on_n1 = StoreFilter.build("pods", None, parse_labels(""), [FieldTerm("spec.nodeName", "n1")])
    assert [e.key for e in store.select("pods", on_n1)] == ["a/c", "x-y/a", "x/b"]
    named = StoreFilter.build("pods", "x", parse_labels("app=a"), [FieldTerm("metadata.name", "a")])
    assert [e.key for e in store.select("pods", named)] == ["x/a"]
    anywhere = StoreFilter.build("pods", None, parse_labels(""), [FieldTerm("metadata.name", "a")])
    assert [e.key for e in store.select("pods", anywhere)] == ["x-y/a", "x/a"]
    other = StoreFilter.build(
        "pods", None, parse_labels("app!=a"), [FieldTerm("metadata.namespace", "x", False)]
    )
    assert [e.key for e in store.select("pods", other)] == ["a/c"]
    assert store.count("pods", "x") == 2
    with pytest.raises(UnknownField):
        StoreFilter.build("pods", None, parse_labels(""), [FieldTerm("spec.color", "red")])


async def test_labels_of_the_wrong_type_are_refused(store: Store) -> None:
    with pytest.raises(errors.Unindexable):
        store.create("pods", "default", "a", {"metadata": {"name": "a", "labels": {"n": 1}}})
    assert store.head("pods", "default", "a") is None
    assert (await store.create("pods", "default", "a", pod("a"))).rv == 2


async def test_past_states_can_be_read(store: Store) -> None:
    await store.create("pods", "d", "a", pod("a", v="1"))
    await store.create("pods", "d", "b", pod("b", v="1"))
    then = store.rv
    await store.update("pods", "d", "a", pod("a", v="2"))
    await store.delete("pods", "d", "b")
    await store.create("pods", "d", "c", pod("c", v="1"))
    past = [(entry.key, entry.labels["v"]) for entry in store.versions("pods", None, at=then)]
    assert past == [("d/a", "1"), ("d/b", "1")]
    assert [e.key for e in store.versions("pods", "d", "d/b", at=then)] == ["d/b"]
    assert [(e.key, e.labels["v"]) for e in store.versions("pods", None)] == [("d/a", "2"), ("d/c", "1")]


async def test_watch_tells_every_change_in_order(store: Store) -> None:
    watcher = store.watch("pods", since=store.rv)
    await store.create("pods", "d", "a", pod("a"))
    await store.update("pods", "d", "a", pod("a", v="2"))
    await store.create("nodes", "", "n", thing("n"))
    await store.delete("pods", "d", "a")
    assert await drain(watcher) == [("ADDED", "d/a", 2), ("MODIFIED", "d/a", 3), ("DELETED", "d/a", 5)]
    watcher.close()
    assert await watcher.batch() == []


async def test_watch_from_a_past_version(store: Store) -> None:
    await store.create("pods", "d", "a", pod("a"))
    since = store.rv
    await store.update("pods", "d", "a", pod("a", v="2"))
    assert await drain(store.watch("pods", since=since)) == [("MODIFIED", "d/a", 3)]


async def test_watch_from_a_future_version_is_silent_until_then(store: Store) -> None:
    watcher = store.watch("pods", since=3)
    await store.create("pods", "d", "a", pod("a"))
    await store.create("pods", "d", "b", pod("b"))
    assert await drain(watcher) == []
    await store.create("pods", "d", "c", pod("c"))
    assert await drain(watcher) == [("ADDED", "d/c", 4)]


async def test_objects_enter_and_leave_a_selection(store: Store) -> None:
    wanted = StoreFilter.build("pods", None, parse_labels("app=x"), [])
    watcher = store.watch("pods", wanted, since=store.rv)
    await store.create("pods", "d", "a", pod("a", app="y"))
    await store.update("pods", "d", "a", pod("a", app="x"))
    await store.update("pods", "d", "a", pod("a", node="n", app="x"))
    watcher.interrupt()
    batch = await watcher.batch()
    assert [(c.op.name, c.entry.rv) for c in batch] == [("ADDED", 3), ("MODIFIED", 4)]
    await store.update("pods", "d", "a", pod("a", app="z"))
    (left,) = await watcher.batch()
    assert (left.op.name, left.entry.rv, left.entry.labels) == ("DELETED", 5, {"app": "x"})
    assert version_of(left.entry.data) == 5
    assert b'"app":"x"' in left.entry.data
    await store.delete("pods", "d", "a")
    assert await drain(watcher) == []


async def test_a_waiting_watch_wakes(store: Store) -> None:
    watcher = store.watch("pods", since=store.rv)
    waiting = asyncio.ensure_future(watcher.batch())
    await asyncio.sleep(0)
    assert not waiting.done()
    await store.create("pods", "d", "a", pod("a"))
    assert [change.entry.key for change in await waiting] == ["d/a"]
    waiting = asyncio.ensure_future(watcher.batch())
    await asyncio.sleep(0)
    watcher.interrupt()
    assert await waiting == []
    waiting = asyncio.ensure_future(watcher.batch())
    await asyncio.sleep(0)
    watcher.close()
    assert await waiting == []
    assert store.watchers() == {}


async def test_a_slow_watch_is_ended(fake_clock: FakeClock) -> None:
    store = Store.open(":memory:", clock=fake_clock, options=StoreOptions(lag_bytes=10_000))
    watcher = store.watch("pods", since=store.rv)
    for n in range(30):
        await store.create("pods", "d", f"p{n}", {**pod(f"p{n}"), "pad": "x" * 500})
    with pytest.raises(errors.TooSlow):
        watcher.poll()
    again = store.watch("pods", since=store.rv - 1)
    assert len(await drain(again)) == 1
    await store.close()


async def test_the_log_serves_what_memory_has_dropped(fake_clock: FakeClock) -> None:
    options = StoreOptions(ring_events=5)
    store = Store.open(":memory:", clock=fake_clock, options=options)
    since = store.rv
    for n in range(40):
        await store.create("pods", "d", f"p{n}", pod(f"p{n}"))
        await store.create("nodes", "", f"n{n}", thing(f"n{n}"))
    seen = await drain(store.watch("pods", since=since))
    assert [key for _, key, _ in seen] == [f"d/p{n}" for n in range(40)]
    with pytest.raises(errors.Expired):
        list(store.versions("pods", None, at=since))
    await store.close()


async def test_the_ring_takes_over_from_the_log_by_itself(fake_clock: FakeClock) -> None:
    store = Store.open(":memory:", clock=fake_clock, options=StoreOptions(ring_events=3))
    for n in range(20):
        await store.create("pods", "d", f"p{n}", pod(f"p{n}"))
    watcher = store.watch("pods", since=1)
    seen = []
    while len(seen) < 20:
        seen += [change.entry.rv for change in await asyncio.wait_for(watcher.batch(), 60)]
    assert seen == list(range(2, 22))
    await store.close()


async def test_selections_are_judged_in_the_log_as_in_memory(fake_clock: FakeClock) -> None:
    store = Store.open(":memory:", clock=fake_clock, options=StoreOptions(ring_events=2))
    since = store.rv
    await store.create("pods", "d", "a", pod("a", app="x"))
    await store.update("pods", "d", "a", pod("a", app="y"))
    await store.update("pods", "d", "a", pod("a", app="x"))
    for n in range(10):
        await store.create("pods", "d", f"p{n}", pod(f"p{n}", app="other"))
    wanted = StoreFilter.build("pods", None, parse_labels("app=x"), [])
    seen = await drain(store.watch("pods", wanted, since=since))
    assert seen == [("ADDED", "d/a", 2), ("DELETED", "d/a", 3), ("ADDED", "d/a", 4)]
    await store.close()


async def test_compaction_forgets_the_past(store: Store) -> None:
    await store.create("pods", "d", "a", pod("a"))
    since = store.rv
    await store.create("nodes", "", "n", thing("n"))
    await store.update("pods", "d", "a", pod("a", v="2"))
    await store.compact("main", store.rv)
    with pytest.raises(errors.Expired) as told:
        store.watch("pods", since=since)
    assert str(told.value) == "too old resource version: 2 (4)"
    with pytest.raises(errors.Expired):
        list(store.versions("pods", None, at=since))
    assert await drain(store.watch("pods", since=store.rv)) == []
    assert [entry.key for entry in store.select("pods")] == ["d/a"]


async def test_a_watch_in_the_log_meets_compaction(fake_clock: FakeClock) -> None:
    store = Store.open(":memory:", clock=fake_clock, options=StoreOptions(ring_events=2))
    since = store.rv
    for n in range(10):
        await store.create("pods", "d", f"p{n}", pod(f"p{n}"))
    watcher = store.watch("pods", since=since)
    await store.compact("main", store.rv - 1)
    with pytest.raises(errors.Expired):
        await watcher.batch()
    await store.close()


async def test_upkeep_compacts_by_age_but_keeps_the_newest(fake_clock: FakeClock) -> None:
    options = StoreOptions(
        families=(replace(MAIN, log_age_seconds=300, log_rows=200_000, log_keep_rows=10), EVENTS, LEASES)
    )
    store = Store.open(":memory:", clock=fake_clock, options=options)
    for n in range(150):
        await store.create("pods", "d", f"p{n}", pod(f"p{n}"))
    await store.maintain()
    fake_clock.jump(299)
    await store.maintain()
    assert store.oldest("pods") == 0
    fake_clock.jump(2)
    for n in range(20):
        await store.create("pods", "d", f"q{n}", pod(f"q{n}"))
    await store.maintain()
    assert 100 < store.oldest("pods") <= 152
    assert len(await drain(store.watch("pods", since=store.rv - 20))) == 20
    await store.close()


async def test_upkeep_compacts_by_count(fake_clock: FakeClock) -> None:
    options = StoreOptions(families=(replace(MAIN, log_rows=300, log_keep_rows=10), EVENTS, LEASES))
    store = Store.open(":memory:", clock=fake_clock, options=options)
    for n in range(1000):
        await store.create("pods", "d", f"p{n}", pod(f"p{n}"))
    await store.maintain()
    assert 600 <= store.oldest("pods") <= 701
    rows = await store.on_database(lambda database: database.log_summary("main"))
    assert rows[0].rows <= 400
    await store.close()


async def test_events_live_an_hour_after_their_last_write(fake_clock: FakeClock) -> None:
    store = Store.open(":memory:", clock=fake_clock)
    await store.create("events", "d", "old", thing("old", reason="A"))
    await store.create("events", "d", "touched", thing("touched", reason="A"))
    await store.create("pods", "d", "p", pod("p"))
    fake_clock.jump(1800)
    await store.update("events", "d", "touched", thing("touched", reason="B"))
    watcher = store.watch("events", since=store.rv)
    fake_clock.jump(1801)
    await store.maintain()
    assert [(op, key) for op, key, _ in await drain(watcher)] == [("DELETED", "d/old")]
    assert [entry.key for entry in store.select("events")] == ["d/touched"]
    fake_clock.jump(3600)
    await store.maintain()
    assert store.count("events") == 0
    assert store.count("pods") == 1
    await store.close()


async def test_a_clock_that_jumps_does_not_expire_events(tmp_path: Path) -> None:
    clock = FakeClock()
    store = Store.open(tmp_path / "w.db", clock=clock)
    await store.create("events", "d", "e", thing("e"))
    clock._now += 10 * 86400  # the wall clock only
    await store.maintain()
    assert store.count("events") == 1
    await store.close()
    clock._now -= 20 * 86400
    store = Store.open(tmp_path / "w.db", clock=clock)
    await store.maintain()
    assert store.count("events") == 1
    clock.jump(EVENTS.ttl_seconds or 0)
    await store.maintain()
    assert store.count("events") == 0
    await store.close()


async def test_everything_comes_back_after_a_restart(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "db" / "w.db"
    store = Store.open(path, clock=fake_clock)
    since = store.rv
    await store.create("pods", "d", "a", pod("a", app="x"))
    await store.create("events", "d", "e", thing("e", reason="R"))
    await store.create("leases.coordination.k8s.io", "d", "l", thing("l"))
    await store.update("pods", "d", "a", pod("a", app="y"))
    last = store.rv
    before = {e.key: (e.rv, e.data, e.labels, e.fields) for e in store.select("pods")}
    await store.close()
    store = Store.open(path, clock=fake_clock)
    assert store.rv == last
    assert {e.key: (e.rv, e.data, e.labels, e.fields) for e in store.select("pods")} == before
    assert store.count("events") == store.count("leases.coordination.k8s.io") == 1
    wanted = StoreFilter.build("pods", None, parse_labels("app=x"), [])
    assert await drain(store.watch("pods", wanted, since=since)) == [
        ("ADDED", "d/a", 2),
        ("DELETED", "d/a", 5),
    ]
    assert (await store.create("pods", "d", "b", pod("b"))).rv == last + 1
    await store.close()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_versions_jump_after_a_crash(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "w.db"
    store = Store.open(path, clock=fake_clock)
    entry = await store.create("pods", "d", "a", pod("a"))
    crash(store)
    store = Store.open(path, clock=fake_clock)
    assert store.rv >= entry.rv + 10_000
    first = store.rv
    crash(store)
    store = Store.open(path, clock=fake_clock)
    assert store.rv >= first + 10_000
    assert store.epoch == 3
    assert await drain(store.watch("pods", since=entry.rv - 1)) == [("ADDED", "d/a", entry.rv)]
    await store.close()


async def test_compaction_is_remembered(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "w.db"
    store = Store.open(path, clock=fake_clock)
    await store.create("pods", "d", "a", pod("a"))
    await store.delete("pods", "d", "a")
    await store.compact("main", store.rv)
    await store.close()
    store = Store.open(path, clock=fake_clock)
    with pytest.raises(errors.Expired):
        store.watch("pods", since=1)
    assert await drain(store.watch("pods", since=store.rv)) == []
    await store.close()


async def test_waiting_for_a_version(store: Store) -> None:
    waiting = asyncio.ensure_future(store.reached(3))
    await store.create("pods", "d", "a", pod("a"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await store.create("pods", "d", "b", pod("b"))
    await waiting
    await store.settled()


def test_restamp_refuses_what_is_not_in_the_stored_form() -> None:
    assert restamp(b'{"metadata":{"resourceVersion":"7","name":"a"}}', 12) == (
        b'{"metadata":{"resourceVersion":"12","name":"a"}}'
    )
    with pytest.raises(ValueError, match="stored form"):
        restamp(b'{"metadata":{"name":"a"}}', 12)
    with pytest.raises(ValueError, match="stored form"):
        version_of(b"{}")
