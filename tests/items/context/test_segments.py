"""Media time of segments: what lies in the window, and the order that results need."""

from __future__ import annotations

import random

import pytest

from windlass.api.media.assembly import assemble, cut
from windlass.api.media.segments import MediaTimeError, Segment, SegmentIndex, times_of
from windlass.items.context.cache import ContextCache
from windlass.items.context.gate import SegmentGate
from windlass.items.context.spec import ContextSpec
from windlass.items.context.streams import SegmentCheck
from windlass.items.fields import SpecFields
from windlass.items.spec import SpecError, check, parse_batch


def stream(name: str, starts: list[float], base: int = 0) -> list[Segment]:
    return [Segment(base + n, f"{name}{n}", name, start, None) for n, start in enumerate(starts)]


def test_window_is_media_time_before_the_start_of_a_segment() -> None:
    index = SegmentIndex(stream("a", [0, 30, 60, 90, 120]), 30)
    assert index.range(4) == (90, 120)
    assert index.before(4) == [3]
    assert (index.range(0), index.before(0)) == ((0, 0), [])
    short = SegmentIndex(stream("a", [0, 10, 20, 30, 75, 80]), 30)
    assert [short.before(n) for n in range(6)] == [[], [0], [0, 1], [0, 1, 2], [3], [3, 4]]
    gap = SegmentIndex([Segment(0, "x", "a", 0, 10), Segment(1, "y", "a", 50, 60)], 30)
    assert gap.before(1) == []
    # A long segment below a short one still lasts, and equal starts do not wait for each other.
    nested = SegmentIndex(
        [Segment(0, "l", "a", 0, 100), Segment(1, "s", "a", 5, 6), Segment(2, "n", "a", 90, 95)], 30
    )
    assert nested.before(2) == [0]
    equal = SegmentIndex(stream("a", [5, 5, 9, 9, 12]), 30)
    assert [equal.end(n) for n in range(5)] == [9, 9, 12, 12, 12]
    same = SegmentIndex([Segment(0, "p", "a", 5, 9), Segment(1, "q", "a", 5, 9)], 30)
    assert (same.before(0), same.before(1)) == ([], [])


def test_media_times_are_seconds_or_time_codes() -> None:
    assert times_of({"start": "00:02:00,500", "end": 125}) == (120.5, 125)
    assert times_of({"start": "90", "duration": "1:30"}) == (90, 180)
    assert times_of({"start": 3}) == (3, None)
    for row, words in (
        ({}, "the field 'start' is missing"),
        ({"start": "two"}, "the field 'start' is 'two'"),
        ({"start": -1}, "the field 'start' is -1"),
        ({"start": 5, "end": 4}, "ends at 4 s, before its start at 5 s"),
    ):
        with pytest.raises(MediaTimeError, match=words):
            times_of(row)
    rows = SegmentCheck(ContextSpec(key="split(file, '/', 1)"))
    assert rows.error({"start": 0, "file": "a/b"}) == ""
    assert "spec.contextCache.key" in rows.error({"start": 0})
    assert "give it another name" in rows.error({"start": 0, "file": "a/b", "context": 1})


def test_gate_frees_each_segment_once_all_before_it_have_ended() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        segments = [Segment(n, str(n), chance.choice("ab"), chance.randrange(100), None) for n in range(30)]
        index = SegmentIndex(segments, chance.choice([1, 5, 30, 500]))
        for number in range(30):
            assert all(number in index.after(other) for other in index.before(number))
        gate = SegmentGate(index, ())
        ready = [n for n in range(30) if n not in gate.waiting]
        assert ready, "the first segment of a stream never waits"
        ended: list[int] = []
        while ready:
            number = ready.pop(chance.randrange(len(ready)))
            assert set(index.before(number)) <= set(ended)
            ended.append(number)
            ready += gate.end([number])
        assert sorted(ended) == list(range(30))
        again = chance.sample(range(30), 10)
        first = gate.reopen(again)
        assert set(first) == {n for n in again if not set(index.before(n)) & set(again)}
        while first:
            first += gate.end([first.pop()])
        assert not gate.waiting


def test_context_is_cut_to_its_window_and_tells_what_is_missing() -> None:
    cues = [{"start": 60, "end": 85, "text": "old"}, {"start": 85, "end": 100, "text": "new"}]
    row = {"id": "s", "text": "old new", "cues": cues, "context": "of itself"}
    found = assemble("a", "Output", (90.0, 120.0), [cut(row, 90, 60, 120)], ["gone"])
    assert found == {
        "stream": "a",
        "mode": "Output",
        "start": 90,
        "end": 120,
        "text": "new",
        "segments": [{"id": "s", "text": "new", "cues": cues[1:], "start": 90, "end": 120}],
        "missing": ["gone"],
    }
    whole = cut({"id": "s", "text": "old new"}, 90, 60, 120)
    assert (whole["start"], whole["text"]) == (60, "old new")


def test_cache_keeps_what_is_needed_beyond_its_size_and_its_time() -> None:
    needed, unfinished = {1, 2}, {1, 2, 3}
    cache = ContextCache(100, 60, needed.__contains__, unfinished.__contains__)
    for number in (1, 2, 3):
        cache.put(f"j/s/{number}", number, {"n": number}, 60, now=float(number))
    assert "j/s/3" not in cache
    assert cache.get("j/s/1", 4) == {"n": 1}
    assert (cache.bytes, cache.evictions) == (120, 1)
    needed.clear()
    cache.put("j/s/4", 4, {}, 10, now=5)
    assert [f"j/s/{n}" in cache for n in (1, 2, 4)] == [True, False, True]
    cache.expire(1000)
    assert [f"j/s/{n}" in cache for n in (1, 4)] == [True, False]
    unfinished.clear()
    cache.expire(1000)
    assert (len(cache), cache.bytes, cache.expired) == (0, 0, 2)
    assert cache.get("j/s/1", 1000) is None


def test_field_is_read_with_defaults_and_messages() -> None:
    def context(**value: object) -> ContextSpec | None:
        return parse_batch({"metadata": {"name": "j"}, "spec": {"contextCache": value}}).context

    assert parse_batch({"metadata": {"name": "j"}, "spec": {}}).context is None
    assert context(enabled=False, window="10s") is None
    assert context(enabled=True) == ContextSpec("Overlap", 30, 3600, 64 * 2**20, "stream")
    assert context(mode="Output", window="1m", maxBytes="1Ki", key="video") == ContextSpec(
        "Output", 60, 3600, 1024, "video"
    )
    for value, words in (
        ({"mode": "Both"}, 'spec.contextCache.mode: Unsupported value: "Both"'),
        ({"window": 0}, "spec.contextCache.window: Invalid value: must be more than 0 s"),
    ):
        with pytest.raises(SpecError, match=words):
            context(**value)
    assert SpecFields({}, "spec", []).inner("contextCache").values == {}


def test_fields_that_exclude_one_another_are_refused() -> None:
    spec = {
        "input": {"inline": '{"id": 1, "start": 0}'},
        "contextCache": {"key": "a +"},
        "outputs": {"path": "/o"},
        "stages": [{"name": "a"}, {"name": "b"}],
    }
    found = dict(check({"metadata": {"name": "j"}, "spec": spec}))
    assert "rows of a job with stages get no context" in found["spec.contextCache"]
    assert "is not a valid expression" in found["spec.contextCache.key"]
    plain = {"input": {**spec["input"], "prompt": "{context.text} {id}"}, "contextCache": {"window": 30}}
    assert check({"metadata": {"name": "j"}, "spec": plain}) == []
