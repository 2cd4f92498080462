"""The reflector's decisions, one by one: what client-go does after each thing that can happen."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from windlass.api.errors import StatusError, expired, failure
from windlass.client.errors import connect_failed, disconnected
from windlass.client.reflector import PAGE, ListPage, OpenWatch, Pause, Reflector
from windlass.client.responses import WatchEvent, decode_slim_envelope
from windlass.kits.clock import FakeClock

UNSUPPORTED = failure(422, "Invalid", "sendInitialEvents is forbidden for watch")
TOO_LARGE = failure(
    504,
    "Timeout",
    "Timeout: Too large resource version: 9, current: 3",
    {"causes": [{"reason": "ResourceVersionTooLarge", "message": "x"}], "retryAfterSeconds": 1},
)
BUSY = failure(429, "TooManyRequests", "slow down", {"retryAfterSeconds": 7})
INTERNAL = failure(500, "InternalError", "oops")
FORBIDDEN = failure(403, "Forbidden", "no")
REFUSED = connect_failed(ConnectionRefusedError(111, "Connection refused"), "https://x", unix=False)
BROKEN = disconnected("https://x", "reset", processed=True)


class Sink:
    """Keeps names only."""

    def __init__(self) -> None:
        self.staged: list[str] = []
        self.live: dict[str, str] = {}
        self.swaps: list[str] = []

    def begin(self) -> None:
        self.staged = []

    def stage(self, obj: msgspec.Raw) -> None:
        self.staged.append(decode_slim_envelope(obj).metadata.name)

    def unstage(self, obj: msgspec.Raw) -> None:
        self.staged.remove(decode_slim_envelope(obj).metadata.name)

    def swap(self, resource_version: str) -> None:
        self.live = dict.fromkeys(self.staged, "")
        self.swaps.append(resource_version)
        self.staged = []

    def upsert(self, obj: msgspec.Raw) -> str:
        metadata = decode_slim_envelope(obj).metadata
        self.live[metadata.name] = metadata.resource_version
        return metadata.resource_version

    def remove(self, obj: msgspec.Raw) -> str:
        metadata = decode_slim_envelope(obj).metadata
        self.live.pop(metadata.name, None)
        return metadata.resource_version


def raw(name: str, rv: int) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"metadata": {"name": name, "resourceVersion": str(rv)}}))


def event(kind: str, name: str = "", rv: int = 0, *, initial_end: bool = False) -> WatchEvent:
    metadata: dict[str, Any] = {"name": name, "resourceVersion": str(rv)}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return WatchEvent(kind, msgspec.Raw(msgspec.json.encode({"metadata": metadata})))


def error_event(error: StatusError) -> WatchEvent:
    return WatchEvent("ERROR", msgspec.Raw(msgspec.json.encode(error.status)))


class Machine:
    """A reflector and the things to look at."""

    def __init__(self, *, watch_list: bool = False) -> None:
        self.sink = Sink()
        self.clock = FakeClock()
        self.reflector = Reflector(self.sink, self.clock, random.Random(1), use_watch_list=watch_list)

    def list(self, rv: str, *names: str) -> ListPage:
        """Answer a whole list."""
        step = self.reflector.step()
        assert isinstance(step, ListPage), step
        self.reflector.listing([raw(name, 1) for name in names])
        self.reflector.listed(rv, "")
        return step

    def open(self) -> OpenWatch:
        step = self.reflector.step()
        assert isinstance(step, OpenWatch), step
        self.reflector.watch_opened()
        return step

    def wait(self) -> float:
        step = self.reflector.step()
        assert isinstance(step, Pause), step
        self.clock.jump(step.seconds)
        return step.seconds

    def following(self, rv: str = "10") -> Machine:
        """Bring it to an open watch that starts at ``rv``."""
        self.list(rv, "a")
        assert self.open().resource_version == rv
        self.clock.jump(5)
        return self


class TestWatchList:
    def test_objects_are_staged_until_the_bookmark_and_swapped_in_at_once(self) -> None:
        machine = Machine(watch_list=True)
        step = machine.open()
        assert (step.resource_version, step.initial_events) == ("", True)
        assert 300 <= step.timeout_seconds <= 600
        machine.reflector.events([event("ADDED", "a", 5), event("ADDED", "b", 3)])
        machine.reflector.events([event("DELETED", "b", 6), event("ADDED", "c", 7), event("BOOKMARK", rv=8)])
        assert (machine.sink.staged, machine.sink.live) == (["a", "c"], {})
        assert not machine.reflector.synced
        machine.reflector.events([event("BOOKMARK", rv=9, initial_end=True), event("MODIFIED", "a", 11)])
        assert machine.reflector.synced
        assert machine.sink.swaps == ["9"]
        assert machine.sink.live == {"a": "11", "c": ""}
        assert machine.reflector.resource_version == "11"

    def test_the_same_stream_goes_on_and_is_resumed_by_a_plain_watch(self) -> None:
        machine = Machine(watch_list=True)
        machine.open()
        machine.reflector.events([event("BOOKMARK", rv=9, initial_end=True)])
        machine.clock.jump(400)
        machine.reflector.watch_ended()
        step = machine.open()
        assert (step.resource_version, step.initial_events) == ("9", False)

    @pytest.mark.parametrize("error", [UNSUPPORTED, failure(400, "BadRequest", "unknown parameter")])
    def test_a_server_that_does_not_know_it_is_listed_at_once_and_from_then_on(
        self, error: StatusError
    ) -> None:
        machine = Machine(watch_list=True)
        assert isinstance(machine.reflector.step(), OpenWatch)
        machine.reflector.watch_refused(error)
        assert machine.list("10", "a").resource_version == ""
        machine.open()
        machine.clock.jump(5)
        machine.reflector.watch_ended(expired())
        machine.wait()
        assert isinstance(machine.reflector.step(), ListPage)

    def test_another_failure_falls_back_to_one_list_only(self) -> None:
        machine = Machine(watch_list=True)
        assert isinstance(machine.reflector.step(), OpenWatch)
        machine.reflector.watch_refused(INTERNAL)
        machine.following()
        machine.reflector.watch_ended(expired())
        machine.wait()
        step = machine.reflector.step()
        assert isinstance(step, OpenWatch)
        assert (step.initial_events, step.resource_version) == (True, "10")

    @pytest.mark.parametrize("error", [BUSY, REFUSED])
    def test_a_server_that_is_busy_or_away_is_asked_again_in_the_same_way(self, error: Any) -> None:
        machine = Machine(watch_list=True)
        machine.reflector.step()
        machine.reflector.watch_refused(error)
        assert machine.wait() >= (7 if error is BUSY else 0.8)
        assert machine.open().initial_events

    def test_a_stream_that_breaks_before_the_bookmark_starts_anew_from_nothing(self) -> None:
        machine = Machine(watch_list=True)
        machine.open()
        machine.reflector.events([event("ADDED", "a", 5)])
        machine.clock.jump(2)
        machine.reflector.watch_ended(BROKEN)
        machine.wait()
        assert machine.open().initial_events
        assert machine.sink.staged == []

    def test_a_stream_that_ends_normally_before_the_bookmark_starts_anew(self) -> None:
        machine = Machine(watch_list=True)
        machine.open()
        machine.reflector.events([event("ADDED", "a", 5)])
        machine.clock.jump(2)
        machine.reflector.watch_ended()
        assert machine.open().initial_events

    @pytest.mark.parametrize("error", [expired(), TOO_LARGE])
    def test_a_version_that_is_gone_is_given_up_at_once(self, error: StatusError) -> None:
        machine = Machine(watch_list=True)
        machine.open()
        machine.reflector.events([event("BOOKMARK", rv=9, initial_end=True)])
        machine.clock.jump(5)
        machine.reflector.watch_ended(expired())
        machine.wait()
        step = machine.reflector.step()
        assert isinstance(step, OpenWatch)
        assert (step.resource_version, step.initial_events) == ("9", True)
        machine.reflector.watch_refused(error)
        assert machine.open().resource_version == ""
        machine.reflector.events([event("BOOKMARK", rv=30, initial_end=True)])
        assert machine.reflector.resource_version == "30"


class TestList:
    def test_the_first_list_asks_for_the_newest_state_in_pages(self) -> None:
        machine = Machine()
        step = machine.reflector.step()
        assert step == ListPage("", PAGE)
        machine.reflector.listing([raw("a", 1)])
        machine.reflector.listed("5", "more")
        assert machine.reflector.step() == ListPage("", PAGE, "more")
        assert not machine.reflector.synced
        machine.reflector.listing([raw("b", 1)])
        machine.reflector.listed("5", "")
        assert sorted(machine.sink.live) == ["a", "b"]
        assert machine.open().resource_version == "5"

    def test_a_relist_asks_for_at_least_the_last_version_in_one_piece(self) -> None:
        machine = Machine().following("10")
        machine.reflector.events([event("MODIFIED", "a", 12)])
        machine.reflector.watch_ended(expired())
        machine.wait()
        assert machine.reflector.step() == ListPage("12", 0)

    @pytest.mark.parametrize("error", [expired(), TOO_LARGE])
    def test_a_version_that_is_gone_leads_to_the_newest_state_at_once(self, error: StatusError) -> None:
        machine = Machine().following("10")
        machine.reflector.watch_ended(expired())
        machine.wait()
        assert machine.reflector.step() == ListPage("10", 0)
        machine.reflector.list_failed(error)
        assert machine.list("40").resource_version == ""
        assert machine.open().resource_version == "40"

    def test_pages_whose_snapshot_expired_are_fetched_in_one_piece(self) -> None:
        machine = Machine()
        machine.reflector.step()
        machine.reflector.listing([raw("a", 1)])
        machine.reflector.listed("5", "more")
        machine.reflector.step()
        machine.reflector.list_failed(expired())
        assert machine.reflector.step() == ListPage("", 0)
        machine.reflector.listing([raw("b", 1)])
        machine.reflector.listed("9", "")
        assert sorted(machine.sink.live) == ["b"]

    def test_other_failures_wait_longer_and_longer(self) -> None:
        machine = Machine()
        waits = []
        for _ in range(8):
            assert isinstance(machine.reflector.step(), ListPage)
            machine.reflector.list_failed(FORBIDDEN)
            waits.append(machine.wait())
        for index, seconds in enumerate(waits):
            base = min(30.0, 0.8 * 2**index)
            assert base <= seconds <= 2 * base

    def test_retry_after_is_obeyed(self) -> None:
        machine = Machine()
        machine.reflector.step()
        machine.reflector.list_failed(failure(429, "TooManyRequests", "x", {"retryAfterSeconds": 90}))
        assert machine.wait() == 90

    def test_two_minutes_of_health_forget_the_failures(self) -> None:
        machine = Machine()
        for _ in range(5):
            machine.reflector.step()
            machine.reflector.list_failed(REFUSED)
            machine.wait()
        machine.clock.jump(121)
        machine.reflector.step()
        machine.reflector.list_failed(REFUSED)
        assert machine.wait() <= 1.6


class TestWatch:
    def test_every_event_moves_the_version_on(self) -> None:
        machine = Machine().following("10")
        machine.reflector.events([event("ADDED", "b", 11), event("MODIFIED", "b", 13)])
        assert machine.reflector.resource_version == "13"
        machine.reflector.events([event("DELETED", "b", 14), event("BOOKMARK", rv=20)])
        assert machine.reflector.resource_version == "20"
        assert sorted(machine.sink.live) == ["a"]
        machine.reflector.watch_ended()
        assert machine.open().resource_version == "20"

    def test_synthetic_additions_do_not_move_the_version(self) -> None:
        """From "" the server sends what is there first, in no order of versions."""
        machine = Machine()
        machine.list("")
        assert machine.open().resource_version == ""
        machine.reflector.events([event("ADDED", "a", 50), event("ADDED", "b", 20)])
        assert machine.reflector.resource_version == ""
        machine.reflector.events([event("BOOKMARK", rv=51), event("ADDED", "c", 52)])
        assert machine.reflector.resource_version == "52"

    def test_an_unknown_event_is_passed_over(self) -> None:
        machine = Machine().following("10")
        assert machine.reflector.events([event("SOMETHING", "b", 99)]) is None
        assert machine.reflector.resource_version == "10"

    def test_events_after_an_error_are_not_taken(self) -> None:
        machine = Machine().following("10")
        problem = machine.reflector.events(
            [event("MODIFIED", "a", 11), error_event(expired("too old")), event("MODIFIED", "a", 12)]
        )
        assert problem is not None
        assert (problem.code, problem.message) == (410, "too old")
        assert machine.reflector.resource_version == "11"

    def test_a_very_short_watch_backs_off_and_lists(self) -> None:
        machine = Machine()
        machine.list("10")
        machine.open()
        machine.clock.jump(0.5)
        machine.reflector.watch_ended()
        assert machine.wait() >= 0.8
        assert isinstance(machine.reflector.step(), ListPage)

    def test_a_short_watch_with_an_event_does_not(self) -> None:
        machine = Machine()
        machine.list("10")
        machine.open()
        machine.reflector.events([event("BOOKMARK", rv=11)])
        machine.reflector.watch_ended()
        assert machine.open().resource_version == "11"

    def test_busy_keeps_the_version_and_watches_again(self) -> None:
        machine = Machine().following("10")
        machine.reflector.watch_ended(BUSY)
        assert machine.wait() >= 7
        assert machine.open().resource_version == "10"

    @pytest.mark.parametrize("error", [REFUSED, BUSY, BROKEN])
    def test_a_watch_that_cannot_be_opened_is_tried_again_without_a_list(self, error: Any) -> None:
        machine = Machine()
        machine.list("10")
        assert isinstance(machine.reflector.step(), OpenWatch)
        machine.reflector.watch_refused(error)
        machine.wait()
        assert machine.open().resource_version == "10"

    @pytest.mark.parametrize("error", [expired(), FORBIDDEN])
    def test_a_watch_that_is_refused_for_another_reason_lists(self, error: StatusError) -> None:
        machine = Machine()
        machine.list("10")
        machine.reflector.step()
        machine.reflector.watch_refused(error)
        machine.wait()
        assert machine.reflector.step() == ListPage("10", 0)

    def test_a_healthy_stream_that_breaks_is_resumed_at_once(self) -> None:
        machine = Machine().following("10")
        machine.reflector.watch_ended(BROKEN)
        assert machine.open().resource_version == "10"

    def test_a_stream_that_breaks_at_once_backs_off(self) -> None:
        machine = Machine()
        machine.list("10")
        machine.open()
        machine.reflector.watch_ended(BROKEN)
        machine.wait()
        assert machine.open().resource_version == "10"

    def test_an_internal_error_is_tried_again_for_a_minute_and_then_lists(self) -> None:
        machine = Machine().following("10")
        tried = 0
        while True:
            machine.reflector.watch_ended(INTERNAL)
            machine.wait()
            step = machine.reflector.step()
            if isinstance(step, ListPage):
                break
            machine.reflector.watch_opened()
            tried += 1
        assert 2 <= tried <= 8
        assert step.resource_version == "10"

    def test_any_other_error_lists(self) -> None:
        machine = Machine().following("10")
        machine.reflector.watch_ended(FORBIDDEN)
        machine.wait()
        assert machine.reflector.step() == ListPage("10", 0)

    def test_watches_live_five_to_ten_minutes(self) -> None:
        machine = Machine()
        machine.list("10")
        lives = set()
        for _ in range(20):
            lives.add(machine.open().timeout_seconds)
            machine.clock.jump(500)
            machine.reflector.watch_ended()
        assert min(lives) >= 300
        assert max(lives) <= 600
        assert len(lives) > 10
