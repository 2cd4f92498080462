from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.client import http11
from windlass.client.transport import Request


class Collector:
    def __init__(self) -> None:
        self.heads: list[tuple[int, Mapping[str, str]]] = []
        self.body = b""
        self.done = 0
        self.parser = http11.ResponseParser(self._head, self._body, self._done)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.heads.append((status, headers))

    def _body(self, data: bytes) -> None:
        self.body += data

    def _done(self) -> None:
        self.done += 1


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n{}\r\n"
CHUNKED = (
    b'HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nWarning: 299 - "a"\r\n'
    b'Warning: 299 - "b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n'
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH
UNFRAMED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end"


@given(st.sampled_from([LENGTH, CHUNKED, INTERIM]), st.data())
@settings(max_examples=60, deadline=None)
def test_any_cut_of_the_bytes_gives_the_same_response(whole: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    collector = Collector()
    for part in parts:
        if part:
            collector.parser.feed(part)
    expected = Collector()
    expected.parser.feed(whole)
    assert (collector.heads, collector.body, collector.done) == (expected.heads, expected.body, 1)
    assert collector.parser.complete
    assert collector.parser.keep_alive


def test_repeated_headers_are_joined_and_names_are_lower_case() -> None:
    collector = Collector()
    collector.parser.feed(CHUNKED)
    status, headers = collector.heads[0]
    assert status == 201
    assert headers["warning"] == '299 - "a", 299 - "b"'
    assert collector.body == b"abcde"


def test_a_body_without_length_ends_with_the_connection() -> None:
    collector = Collector()
    collector.parser.feed(UNFRAMED)
    assert collector.done == 0
    assert collector.parser.end_of_stream()
    assert (collector.body, collector.done) == (b"until the end", 1)
    assert not collector.parser.keep_alive


def test_a_body_with_a_length_does_not_end_with_the_connection() -> None:
    collector = Collector()
    collector.parser.feed(LENGTH[:-2])
    assert not collector.parser.end_of_stream()
    assert collector.done == 0


def test_two_responses_on_one_connection() -> None:
    collector = Collector()
    collector.parser.feed(LENGTH)
    collector.parser.complete = False
    collector.parser.feed(CHUNKED)
    assert [status for status, _ in collector.heads] == [200, 201]
    assert collector.done == 2


def test_garbage_is_refused() -> None:
    with pytest.raises(http11.ProtocolError, match=r"SSH-2\.0"):
        Collector().parser.feed(b"SSH-2.0-OpenSSH_9.2p1\r\n")


def test_encoding() -> None:
    request = Request("POST", "/api/v1/pods", "a=b", {"content-type": "application/json"}, b"{}")
    data = http11.encode(request, http11.fixed_headers("h:1"), "Bearer t")
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /api/v1/pods?a=b HTTP/1.1"
    assert sorted(lines[1:]) == [
        b"accept-encoding: identity",
        b"authorization: Bearer t",
        b"content-length: 2",
        b"content-type: application/json",
        b"host: h:1",
    ]
    assert body == b"{}"


def test_a_post_without_body_says_its_length_and_a_get_does_not() -> None:
    fixed = http11.fixed_headers("h")
    assert b"content-length: 0" in http11.encode(Request("POST", "/x"), fixed)
    assert b"content-length" not in http11.encode(Request("GET", "/x"), fixed)


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "/x\r\nevil: 1"),
        Request("GET", "/x", "a=b\nc"),
        Request("GET", "/x", headers={"a": "b\r\nevil: 1"}),
    ],
)
def test_no_header_can_be_smuggled_in(request_: Request) -> None:
    with pytest.raises(ValueError, match="line break"):
        http11.encode(request_, http11.fixed_headers("h"))


def test_a_header_that_is_said_always_has_no_line_break() -> None:
    assert b"\r\nimpersonate-user: a\r\n" in http11.fixed_headers("h", (("impersonate-user", "a"),))
    with pytest.raises(ValueError, match="line break"):
        http11.fixed_headers("h", (("impersonate-user", "a\r\nx: y"),))


def test_an_interrupt_during_a_response_stays_an_interrupt() -> None:
    def interrupted(data: bytes) -> None:
        raise KeyboardInterrupt

    parser = http11.ResponseParser(lambda status, headers: None, interrupted, lambda: None)
    with pytest.raises(KeyboardInterrupt):
        parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbegun")
