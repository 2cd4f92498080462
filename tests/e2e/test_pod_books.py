"""What the rounds of faults are judged by notices what must never be."""

from __future__ import annotations

from typing import Any

import pytest
from claim_workloads import ClaimBooks
from extra_workloads import CardParts, QueueCap
from overcommitment import FullBooks
from pod_log import GPU

Json = dict[str, Any]


@pytest.fixture
def books() -> FullBooks:
    return FullBooks({"n": {"cpu": 64_000, "pods": 10, GPU: 2}}, {"a": 2, "b": 1})


def pod(
    name: str,
    gpus: int = 0,
    node: str = "",
    phase: str = "Pending",
    notes: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """Of the gang that its first letter names."""
    asked = {GPU: str(gpus)} if gpus else {"cpu": "1"}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {"gang": name[0]}, "annotations": notes or {}}
    container = {"resources": {"requests": asked}}
    named = {"nodeName": node} if node else {}
    return {
        "metadata": metadata,
        "spec": {"schedulerName": "windlass", "containers": [container], **named, **spec},
        "status": {"phase": phase},
    }


def claim(device: str, *users: str) -> Json:
    results = [{"pool": "n", "device": device}]
    reserved = [{"uid": f"uid-{user}"} for user in users]
    return {"status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}}


def test_more_than_a_node_has_is_an_excess_until_somebody_goes(books: FullBooks) -> None:
    books.put("x/a-0", pod("a-0", 2, "n"), 1.0)
    books.put("x/b-0", pod("b-0", 1, "n"), 2.0)
    assert [one.what for one in books.now_over.values()] == [f"n has 2 of {GPU}; with x/b-0 3 are taken"]
    books.put("x/a-0", pod("a-0", 2, "n", "Succeeded"), 3.0)
    assert [(one.begin, one.end, one.shared) for one in books.excesses] == [(2.0, 3.0, False)]


def test_a_gang_stands_between_while_somebody_lives_and_others_lack(books: FullBooks) -> None:
    books.put("x/a-0", pod("a-0", 1, "n"), 1.0)
    books.put("x/a-1", pod("a-1", 1, "n"), 3.0)
    books.remove("x/a-1", 5.0)
    assert books.broken == {"a": "gone"}
    books.put("x/a-0", pod("a-0", 1, "n", "Succeeded"), 6.0)
    assert books.spells == [("a", 1.0, 3.0), ("a", 5.0, 6.0)]
    assert not books.living["a"]


def test_a_queue_above_what_it_may_hold(books: FullBooks) -> None:
    books.judges.append(QueueCap(frozenset("a"), 1))
    books.put("x/b-0", pod("b-0", 1, "n"), 1.0)
    books.put("x/a-0", pod("a-0", 1, "n"), 1.0)
    assert books.problems == []
    books.put("x/b-0", pod("b-0", 1, "n", "Succeeded"), 1.0)
    books.put("x/a-1", pod("a-1", 1, "n"), 2.0)
    assert books.problems == ["its queue may hold 1 GPUs; with x/a-1 it holds 2"]


def test_a_card_that_is_shared_beyond_what_it_has_or_given_whole_too(books: FullBooks) -> None:
    books.judges.append(CardParts(books))

    def part(milli: int) -> dict[str, str]:
        return {"windlass.dev/devices": "0", "windlass.dev/device-shares": f"0:{milli}/0"}

    books.put("x/a-0", pod("a-0", node="n", notes=part(600)), 1.0)
    books.put("x/a-1", pod("a-1", node="n", notes=part(400)), 1.0)
    assert books.problems == []
    books.put("x/b-0", pod("b-0", node="n", notes=part(1)), 1.0)
    assert len(books.problems) == 1
    books.put("x/b-1", pod("b-1", 1, "n", notes={"windlass.dev/devices": "0"}), 1.0)
    assert "card 0 of n is given to uid-b-1 and in parts" in books.problems[1]


def test_a_device_in_two_claims_and_who_is_bound_without_his(books: FullBooks) -> None:
    judge = ClaimBooks(books)
    books.judges.append(judge)
    books.claim = judge.put
    books.put_claim("x/c", claim("d-0", "a-0"))
    books.put("x/a-0", pod("a-0", node="n", resourceClaims=[{"resourceClaimName": "c"}]), 1.0)
    assert books.problems == []
    books.put_claim("x/d", claim("d-0", "b-0"))
    assert books.problems.pop() == "device ('n', 'd-0') is given to claims x/c and x/d"
    books.put("x/b-0", pod("b-0", node="m", resourceClaims=[{"resourceClaimName": "d"}]), 1.0)
    assert books.problems.pop() == "x/b-0 is bound to m and its claim x/d is for {'n'}"
    books.put("x/b-1", pod("b-1", node="n", resourceClaims=[{"resourceClaimName": "d"}]), 1.0)
    assert books.problems.pop() == "x/b-1 is bound and may not use its claim x/d"
    books.put_claim("x/c", None)
    assert "claim x/c of x/a-0, which is bound" in books.problems.pop()
