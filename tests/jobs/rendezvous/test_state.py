"""Rendezvous state of PyTorch: a recorded state of 1.13, states with newer attributes, hostile pickles."""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.jobs.rendezvous.state import (
    RendezvousNode,
    RendezvousState,
    RendezvousStateError,
    address_field_of,
    decode_state,
    encode_state,
)

RECORDED = base64.b64decode(
    "gASVhgEAAAAAAACMN3RvcmNoLmRpc3RyaWJ1dGVkLmVsYXN0aWMucmVuZGV6dm91cy5keW5hbWljX3JlbmRlenZvdXOUjBBf"
    "UmVuZGV6dm91c1N0YXRllJOUKYGUfZQojAVyb3VuZJRLA4wIY29tcGxldGWUiIwIZGVhZGxpbmWUjAhkYXRldGltZZSMCGRh"
    "dGV0aW1llJOUQwoH6gECAwQFAAAGlIWUUpSMBmNsb3NlZJSJjAxwYXJ0aWNpcGFudHOUfZQoaACMCV9Ob2RlRGVzY5STlCmB"
    "lH2UKIwEZnFkbpSMDHgtd29ya2VyLTAueJSMA3BpZJRLDIwIbG9jYWxfaWSUSwB1YksAaBIpgZR9lChoFYwMeC13b3JrZXIt"
    "MS54lGgXSw1oGEsAdWJLAXWMCXdhaXRfbGlzdJSPlChoEimBlH2UKGgVjAx4LXdvcmtlci0yLniUaBdLBWgYSwB1YpCMD2xh"
    "c3RfaGVhcnRiZWF0c5R9lGgTaApDCgfqAQIDBAAAAACUhZRSlHN1Yi4="
)
"""State that PyTorch 1.13 pickled."""
FIRST, SECOND, THIRD = (RendezvousNode(f"x-worker-{i}.x", pid, 0) for i, pid in enumerate((12, 13, 5)))


def test_a_recorded_state_is_read() -> None:
    state = decode_state(RECORDED)
    assert (state.round, state.complete, state.closed) == (3, True, False)
    assert state.participants == {FIRST: 0, SECOND: 1}
    assert state.waiting == {THIRD}
    assert state.heartbeats == {FIRST: datetime(2026, 1, 2, 3, 4)}
    assert state.others == {"deadline": datetime(2026, 1, 2, 3, 4, 5, 6)}
    assert FIRST.pod == "x-worker-0"
    assert address_field_of(RECORDED) == "fqdn"


TIMES = st.sampled_from(
    [
        datetime(2026, 11, 29, 15, 0, 1, 999_999),
        datetime(2026, 11, 29, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))),
    ]
)
NODES = st.builds(RendezvousNode, st.text(max_size=20), st.integers(0, 2**40), st.integers(0, 9))
STATES = st.builds(
    RendezvousState,
    round=st.integers(0, 2**33),
    complete=st.booleans(),
    closed=st.booleans(),
    participants=st.dictionaries(NODES, st.integers(0, 9), max_size=4),
    waiting=st.sets(NODES, max_size=3),
    heartbeats=st.dictionaries(NODES, TIMES, max_size=3),
    others=st.dictionaries(
        st.sampled_from(["deadline", "redundancy_list", "extra"]),
        st.one_of(
            st.none(), TIMES, st.floats(allow_nan=False), st.lists(st.integers()), st.sets(NODES, max_size=2)
        ),
    ),
)


@settings(max_examples=150, deadline=None)
@given(STATES, st.sampled_from(["fqdn", "addr"]))
def test_what_is_written_is_read_again(state: RendezvousState, field: str) -> None:
    data = encode_state(state, field)
    again = decode_state(data)
    assert encode_state(again, field) == data
    assert (again.participants, again.waiting, again.heartbeats) == (
        state.participants,
        state.waiting,
        state.heartbeats,
    )


def test_other_pickles_run_nothing_and_are_refused() -> None:
    class Hostile:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.system, ("touch /tmp/never",))

    for data in (pickle.dumps(Hostile()), pickle.dumps({"round": 1}), b"", b"\x80\x04N", RECORDED[:-9]):
        with pytest.raises(RendezvousStateError):
            decode_state(data)


@pytest.mark.torch
def test_pytorch_itself_reads_a_written_state() -> None:
    python = "/usr/bin/python3"
    module = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
    program = (
        f"import pickle, sys, {module} as d\n"
        "s = pickle.loads(sys.stdin.buffer.read())\n"
        "assert isinstance(s, d._RendezvousState)\n"
        "print(s.round, sorted(s.participants.items()), s.deadline, s.wait_list)"
    )
    if (
        not os.path.exists(python)
        or subprocess.run([python, "-c", f"import {module}"], check=False).returncode
    ):
        pytest.skip(f"{python} has no torch (Debian: apt-get install python3-torch)")
    data = encode_state(decode_state(RECORDED))
    done = subprocess.run([python, "-c", program], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    words = "3 [(x-worker-0.x_12_0, 0), (x-worker-1.x_13_0, 1)] 2026-01-02 03:04:05.000006 {x-worker-2.x_5_0}"
    assert done.stdout.decode().strip() == words
