"""The store's history against a model: any writes, watches from anywhere, compaction, crashes."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import crash, drain, pod

from windlass.api.selectors import FieldTerm, parse_labels
from windlass.kits.clock import FakeClock
from windlass.store import errors
from windlass.store.families import StoreOptions
from windlass.store.filters import StoreFilter
from windlass.store.store import Store

NAMES = ("a", "b", "c")
NAMESPACES = ("x", "x-y")
LABELS = ("red", "blue")
NODES = ("", "n1")

FILTERS = (
    StoreFilter(),
    StoreFilter("x"),
    StoreFilter.build("pods", None, parse_labels("color=red"), []),
    StoreFilter.build("pods", "x-y", parse_labels("color!=red"), []),
    StoreFilter.build("pods", None, parse_labels(""), [FieldTerm("spec.nodeName", "n1")]),
    StoreFilter.build("pods", None, parse_labels("color in (red)"), [FieldTerm("metadata.name", "a")]),
)

places = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(NAMES))
shapes = st.tuples(st.sampled_from(LABELS), st.sampled_from(NODES))
share = st.floats(0, 1)
operations = st.one_of(
    st.tuples(st.just("put"), places, shapes),
    st.tuples(st.just("put"), places, shapes),
    st.tuples(st.just("delete"), places),
    st.tuples(st.just("stale"), places),
    st.tuples(st.just("burst"), st.lists(st.tuples(places, shapes), min_size=2, max_size=5)),
    st.tuples(st.just("watch"), share, st.integers(0, len(FILTERS) - 1)),
    st.tuples(st.just("past"), share, st.integers(0, len(FILTERS) - 1)),
    st.tuples(st.just("compact"), share),
    st.tuples(st.just("crash")),
    st.tuples(st.just("reopen")),
)

Shape = tuple[str, str]


@dataclass
class Change:
    rv: int
    key: str
    before: Shape | None
    after: Shape | None


@dataclass
class Model:
    history: list[Change] = field(default_factory=list)
    state: dict[str, tuple[int, Shape]] = field(default_factory=dict)
    compacted: int = 0
    highest: int = 1

    def write(self, rv: int, key: str, after: Shape | None) -> None:
        assert rv > self.highest, "versions ascend"
        self.highest = rv
        before = self.state.get(key)
        self.history.append(Change(rv, key, before[1] if before else None, after))
        if after is None:
            del self.state[key]
        else:
            self.state[key] = (rv, after)

    def at(self, rv: int) -> dict[str, Shape]:
        state: dict[str, Shape] = {}
        for change in self.history:
            if change.rv <= rv:
                if change.after is None:
                    state.pop(change.key)
                else:
                    state[change.key] = change.after
        return state

    def seen(self, since: int, wanted: StoreFilter) -> list[tuple[str, str, int]]:
        found = []
        for change in self.history:
            if change.rv <= since:
                continue
            before = change.before is not None and matches(wanted, change.key, change.before)
            after = change.after is not None and matches(wanted, change.key, change.after)
            word = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}.get(
                (before, after)
            )
            if word:
                found.append((word, change.key, change.rv))
        return found


def matches(wanted: StoreFilter, key: str, shape: Shape) -> bool:
    """The filters, told a second time without the store's index."""
    namespace, name = key.split("/")
    color, node = shape
    return (
        True,
        namespace == "x",
        color == "red",
        namespace == "x-y" and color != "red",
        node == "n1",
        color == "red" and name == "a",
    )[FILTERS.index(wanted)]


class Run:
    def __init__(self, folder: str, ring_events: int) -> None:
        self.path = Path(folder) / "w.db"
        self.clock = FakeClock()
        self.options = StoreOptions(ring_events=ring_events, synchronous="OFF")
        self.model = Model()
        self.store = self.open()

    def open(self) -> Store:
        return Store.open(self.path, clock=self.clock, options=self.options)

    def submit(self, place: tuple[str, str], shape: Shape) -> asyncio.Future:
        namespace, name = place
        color, node = shape
        obj = pod(name, namespace, node=node, color=color)
        head = self.store.head("pods", namespace, name)
        if head is None:
            return self.store.create("pods", namespace, name, obj)
        return self.store.update("pods", namespace, name, obj, expected=head.rv)

    async def put(self, place: tuple[str, str], shape: Shape) -> None:
        entry = await self.submit(place, shape)
        self.model.write(entry.rv, entry.key, shape)

    async def burst(self, writes: list[tuple[tuple[str, str], Shape]]) -> None:
        futures = [self.submit(place, shape) for place, shape in writes]
        for future, (_, shape) in zip(futures, writes, strict=True):
            entry = await future
            self.model.write(entry.rv, entry.key, shape)

    async def delete(self, place: tuple[str, str]) -> None:
        key = "/".join(place)
        if key not in self.model.state:
            try:
                self.store.delete("pods", *place)
            except errors.Missing:
                return
            raise AssertionError("deleted what is not there")
        entry = await self.store.delete("pods", *place)
        self.model.write(entry.rv, key, None)

    async def stale(self, place: tuple[str, str]) -> None:
        if "/".join(place) in self.model.state:
            try:
                self.store.update("pods", *place, pod(place[1], place[0]), expected=self.store.rv + 1)
            except errors.Conflict:
                return
            raise AssertionError("a stale update was taken")

    async def watch(self, part: float, number: int) -> None:
        since = int(part * self.store.rv)
        try:
            watcher = self.store.watch("pods", FILTERS[number], since=since)
            seen = await drain(watcher)
        except errors.Expired:
            lost = [c for c in self.model.history if since < c.rv]
            assert since < self.model.compacted or (FILTERS[number].selective and lost)
            return
        watcher.close()
        assert seen == self.model.seen(since, FILTERS[number])

    async def past(self, part: float, number: int) -> None:
        rv = int(part * self.store.rv)
        try:
            found = list(self.store.versions("pods", FILTERS[number].namespace, at=rv))
        except errors.Expired:
            assert any(change.rv > rv for change in self.model.history)
            return
        shown = {e.key: (e.labels["color"], e.fields[0]) for e in found if FILTERS[number].matches(e)}
        wanted = {k: v for k, v in self.model.at(rv).items() if matches(FILTERS[number], k, v)}
        assert shown == wanted
        assert [e.key for e in found] == sorted(e.key for e in found)

    async def compact(self, part: float) -> None:
        upto = int(part * self.store.rv)
        await self.store.compact("main", upto)
        self.model.compacted = max(self.model.compacted, upto)

    async def crash(self) -> None:
        crash(self.store)
        self.reopened()

    async def reopen(self) -> None:
        await self.store.close()
        self.reopened()

    def reopened(self) -> None:
        self.store = self.open()
        assert self.store.rv >= self.model.highest
        self.model.highest = self.store.rv

    def check(self) -> None:
        shown = {e.key: (e.rv, (e.labels["color"], e.fields[0])) for e in self.store.select("pods")}
        assert shown == self.model.state


async def play(steps: list[tuple], ring_events: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder, ring_events)
        try:
            for name, *arguments in steps:
                await getattr(run, name)(*arguments)
                run.check()
            await run.watch(0.0, 0)
        finally:
            await run.store.close()


@given(st.lists(operations, min_size=5, max_size=40), st.sampled_from((1, 3, 1000)))
@settings(max_examples=examples(60), deadline=None)
def test_history_equals_the_model(steps: list[tuple], ring_events: int) -> None:
    asyncio.run(play(steps, ring_events))
