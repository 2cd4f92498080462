from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from example_counts import examples
from fake_transport import FakeTransport, FedStream, ok, streaming
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.resources import PODS
from windlass.client import listing
from windlass.client.client import Client
from windlass.client.errors import Unreachable, disconnected
from windlass.client.listing import ListSplitter
from windlass.client.retries import NEVER
from windlass.client.transport import Response
from windlass.kits.clock import FakeClock

HEAD = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c"},"items":['
NASTY = ['},{"metadata"', '"items":[', "}],", '\\"},{\\"metadata\\"', "[", "\\", "]}"]
TEXT = st.one_of(st.sampled_from(NASTY), st.text(max_size=20))
VALUE = st.recursive(
    st.one_of(TEXT, st.integers(0, 9), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.just("metadata"), TEXT), inner, max_size=3),
        st.lists(st.fixed_dictionaries({"metadata": inner}), max_size=3),
    ),
    max_leaves=8,
)
OBJECTS = st.lists(st.fixed_dictionaries({"metadata": VALUE, "spec": VALUE}), max_size=40)


def body(objects: list[Any], *, after: bool = False) -> bytes:
    """As API servers write it: built-in kinds with the list's metadata first, custom ones with it last."""
    metadata = {"resourceVersion": "7", "continue": "c"}
    first = {"apiVersion": "v1", "items": objects, "kind": "PodList", "metadata": metadata}
    last = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": objects}
    return msgspec.json.encode(first if after else last) + b"\n"


def pods(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"metadata": {"name": f"p-{i}"}, **more} for i in range(count)]


def split(data: bytes, size: int) -> tuple[list[Any], list[int], ListSplitter]:
    """The objects, how many came at each feed, and the splitter."""
    splitter = ListSplitter("the list")
    found: list[Any] = []
    counts = []
    for at in range(0, len(data), size):
        raws = splitter.feed(data[at : at + size])
        counts.append(len(raws))
        found += [msgspec.json.decode(raw) for raw in raws]
    found += [msgspec.json.decode(raw) for raw in splitter.finish()]
    return found, counts, splitter


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PIECE_BYTES", 64)


class TestObjects:
    @pytest.mark.parametrize("after", [False, True])
    @given(objects=OBJECTS, size=st.integers(1, 300), piece=st.integers(1, 200))
    @settings(max_examples=examples(200))
    def test_all_come_once_and_in_order_however_the_bytes_are_cut(
        self, after: bool, objects: list[Any], size: int, piece: int
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listing, "PIECE_BYTES", piece)
            found, _, splitter = split(body(objects, after=after), size)
        assert found == objects
        assert (splitter.metadata.resourceVersion, splitter.metadata.continue_token) == ("7", "c")

    @pytest.mark.parametrize("after", [False, True])
    def test_they_come_while_the_list_does(self, small: None, after: bool) -> None:
        found, counts, _ = split(body(pods(100), after=after), 64)
        assert found == pods(100)
        assert sum(counts) > 90
        assert max(counts) < 10

    def test_an_end_within_an_object_is_passed_over(self, small: None) -> None:
        nested = pods(10, templates=[{"metadata": {"name": str(i)}} for i in range(20)])
        found, counts, _ = split(body(nested), 100)
        assert found == nested
        assert sum(counts) > 5

    def test_bytes_are_not_looked_at_again_and_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(listing, "PIECE_BYTES", 1000)
        seen: list[int] = []
        plain = listing._decode_items
        monkeypatch.setattr(listing, "_decode_items", lambda data: (seen.append(len(data)), plain(data))[1])
        data = body(pods(2000))
        split(data, 10)
        assert sum(seen) < 1.2 * len(data)


class TestOther:
    @pytest.mark.parametrize(
        "data",
        [
            b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":null}',
            b'{"kind":"PodList","metadata":{"resourceVersion":"7"}}',
            b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}',
            b'{"items":[],"metadata":{"resourceVersion":"7"}}',
        ],
    )
    def test_an_empty_list(self, data: bytes) -> None:
        found, _, splitter = split(data, 9)
        assert (found, splitter.metadata.resourceVersion) == ([], "7")

    def test_a_list_that_is_written_with_blanks_is_read_as_a_whole(self, small: None) -> None:
        data = msgspec.json.format(body(pods(30)), indent=2)
        found, counts, _ = split(data, 50)
        assert (found, sum(counts)) == (pods(30), 0)

    def test_a_head_that_never_ends_is_not_searched_again_and_again(
        self, small: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listing, "_HEAD_BYTES", 100)
        data = b'{"kind":"' + b"x" * 500 + b'","metadata":{"resourceVersion":"7"},"items":[{"metadata":{}}]}'
        found, counts, _ = split(data, 50)
        assert (found, sum(counts)) == ([{"metadata": {}}], 0)

    def test_where_items_begin_within_something_else_nothing_is_cut(self, small: None) -> None:
        data = b'{"metadata":{"resourceVersion":"7","more":{"items":[1]}},"items":[%s]}' % b",".join(
            msgspec.json.encode(one) for one in pods(30)
        )
        found, _, splitter = split(data, 50)
        assert (found, splitter.metadata.resourceVersion) == (pods(30), "7")

    @pytest.mark.parametrize("cut", [10, len(HEAD) + 5, -2])
    def test_half_a_list_is_none(self, cut: int) -> None:
        with pytest.raises(Unreachable, match="the list"):
            split(body(pods(3))[:cut], 7)

    @pytest.mark.parametrize("data", [b"[]", b"<html>", b'{"items":[{"metadata":{}}]}', b""])
    def test_something_else_is_none(self, data: bytes) -> None:
        with pytest.raises(Unreachable):
            split(data, 7)


def client(answer: Callable[[], Response]) -> Client:
    return Client(FakeTransport(lambda _: answer()), clock=FakeClock(), rng=random.Random(1), retries=NEVER)


class TestListing:
    async def test_objects_come_from_a_body_that_is_there(self) -> None:
        found = await client(lambda: ok(msgspec.json.decode(body(pods(3))))).listing(PODS)
        names = [msgspec.json.decode(raw)["metadata"]["name"] async for batch in found for raw in batch]
        assert names == ["p-0", "p-1", "p-2"]
        assert found.metadata.resourceVersion == "7"

    async def test_a_stream_that_breaks_raises_and_one_that_is_left_is_closed(self, small: None) -> None:
        stream = FedStream()
        found = await client(lambda: streaming(stream)).listing(PODS)
        stream.feed(body(pods(20))[:400])
        assert len(await found.__anext__()) > 5
        stream.end(disconnected("x", "reset", processed=True))
        with pytest.raises(Unreachable):
            await found.__anext__()
        await found.aclose()
        assert stream.closed
