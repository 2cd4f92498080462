"""``node.probes.http_probe``: answers as they come, piece by piece, read as Go's client reads them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.node.probes.http_probe import BODY_BYTES, IncomingResponse

HEADS = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 302 \nLocation: /there\n",
    b"HTTP/1.1 100 Continue\r\nLocation: /not-this\r\n\r\nHTTP/1.1 503 No\r\nX: a\r\n b\r\n",
    b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 404\r\nLocation: /x\r\nLocation: /y\r\n",
]
BODIES = [
    b"\r\n",
    b"\r\nto the end",
    b"Content-Length: 4\r\n\r\nfour",
    b"Content-Length: 4\r\n\r\nfour and more HTTP/1.1 500 No\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2 ;x=y\r\nde\r\n0\r\nLocation: /late\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
]
WHOLE = [head + body for head in HEADS for body in BODIES]


def read(*pieces: bytes) -> tuple[int, dict[str, str], bytes]:
    """Parse a response that arrives in these pieces before the server closes."""
    reply = IncomingResponse()
    for piece in (*pieces, b""):
        if reply.complete:
            break
        reply.feed(piece)
    assert reply.complete
    return reply.code, reply.headers, bytes(reply.body)


@given(st.sampled_from(WHOLE), st.data())
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(answer: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(answer) - 1))))
    pieces = [answer[start:end] for start, end in pairwise((0, *cuts, len(answer)))]
    assert read(*pieces) == read(answer)


def test_what_is_read() -> None:
    assert [read(answer)[0] for answer in WHOLE[:: len(BODIES)]] == [200, 302, 503, 404]
    bodies = [b"", b"to the end", b"four", b"four", b"abcde", b"abc"]
    assert [read(answer)[2] for answer in WHOLE] == bodies * len(HEADS)
    assert [read(answer)[1].get("location") for answer in WHOLE[4 :: len(BODIES)]] == [
        *(None, "/there", None, "/x"),
    ]


@pytest.mark.parametrize("code", [101, 204, 304])
def test_answers_without_a_body_are_read_at_once(code: int) -> None:
    reply = IncomingResponse()
    reply.feed(f"HTTP/1.1 {code} X\r\nContent-Length: 5\r\n\r\n".encode())
    assert (reply.code, reply.complete, bytes(reply.body)) == (code, True, b"")


def test_a_change_of_protocol_is_an_answer() -> None:
    reply = IncomingResponse()
    reply.feed(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00")
    assert (reply.code, reply.complete) == (101, True)


def test_no_more_is_read_than_is_asked_for() -> None:
    reply = IncomingResponse()
    reply.feed(b"HTTP/1.1 200 OK\r\n\r\n" + b"y" * (BODY_BYTES - 1))
    assert not reply.complete
    reply.feed(b"y")
    assert reply.complete


BROKEN = "net/http: HTTP/1.x transport connection broken: "


@pytest.mark.parametrize(
    ("pieces", "kind", "words"),
    [
        ((b"",), EOFError, "EOF"),
        ((b"HTTP/1.1 200 OK\r\nX", b""), EOFError, "unexpected EOF"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", b""), EOFError, "unexpected EOF"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", b""), EOFError, "unexpected EOF"),
        ((b"SSH-2.0-x\r\nmore",), ValueError, f'{BROKEN}malformed HTTP response "SSH-2.0-x"'),
        ((b"\x15\x03\x01",), ValueError, f'{BROKEN}malformed HTTP response "\x15\x03\x01"'),
        ((b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",), ValueError, f"{BROKEN}Invalid header token"),
        (
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",),
            ValueError,
            "Invalid character in",
        ),
        (
            (b"HTTP/1.1 200 OK\r\n", *[b"X: " + b"y" * (1 << 20) + b"\r\n"] * 10),
            ValueError,
            "net/http: server response headers exceeded 10485760 bytes; aborted",
        ),
    ],
)
def test_what_is_no_answer_is_told_in_gos_words(
    pieces: tuple[bytes, ...], kind: type[Exception], words: str
) -> None:
    reply = IncomingResponse()

    def feed(*given: Any) -> None:
        for piece in given:
            reply.feed(piece)

    feed(*pieces[:-1])
    with pytest.raises(kind) as told:
        feed(pieces[-1])
    assert str(told.value).startswith(words)
    assert not reply.complete
