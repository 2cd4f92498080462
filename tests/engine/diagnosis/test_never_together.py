"""Gangs with members that exclude one another, or do not pack, on empty nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cluster_dsl import Cluster, needs

from windlass.api.reasons import Explanation
from windlass.spi.objects import Expression, HostPort, Needs, PodTerm, SpreadTerm, VolumeNeed

OWN = (Expression("app", "In", ("g",)),)


def apart(key: str) -> Needs:
    return needs("cpu=1", anti_affinity=(PodTerm(OWN, key),), labels={"app": "g"})


def spread(key: str, skew: int = 1) -> Needs:
    return needs("cpu=1", spread=(SpreadTerm(key, skew, True, OWN),), labels={"app": "g"})


ALONE = needs("cpu=1", volumes=(VolumeNeed("ns/c", exclusive=True),))
PORT = needs("cpu=1", host_ports=(HostPort("TCP", 80),))
ZONES = ("n1 zone=a cpu=8", "n2 zone=a cpu=8", "n3 zone=b cpu=8")
HOST = "kubernetes.io/hostname"


def told(nodes: tuple[str, ...], gang: Callable[[Cluster], object], busy: str = "") -> Explanation:
    c = Cluster().queues("default").nodes(*nodes)
    if busy:
        c.running("busy", "n1", busy)
    gang(c)
    c.cycle()
    return c.explain("g")


def of_one_class(members: int, kind: Needs) -> Callable[[Cluster], object]:
    return lambda c: c.gang("g", members, kind)


def of_sizes(*sizes: int, least: int = 0) -> Callable[[Cluster], object]:
    def made(c: Cluster) -> None:
        c.gang("g", 0, min=least or len(sizes))
        for at, size in enumerate(sizes):
            c.add_tasks("g", 1, f"cpu={size}", role=f"r{at}")

    return made


@pytest.mark.parametrize("busy", ["", "cpu=7"])
@pytest.mark.parametrize(
    ("gang", "fitting", "rule"),
    [
        (of_one_class(4, apart(HOST)), 3, "anti-affinity to its own kind per kubernetes.io/hostname"),
        (of_one_class(3, apart("zone")), 2, "anti-affinity to its own kind per zone"),
        (of_one_class(4, PORT), 3, "host port 80/TCP"),
        (of_one_class(2, ALONE), 1, "claim ns/c is for one pod alone"),
        (of_one_class(18, spread("zone")), 17, "spread constraint per zone"),
        (of_sizes(5, 5, 5, 4), 3, ""),
        (of_sizes(7, 7, 7, 2), 3, ""),
        (of_sizes(5, 5, 5, 5, 4, least=4), 3, ""),
    ],
)
def test_gang_that_never_fits_is_told_so(
    gang: Callable[[Cluster], object], fitting: int, rule: str, busy: str
) -> None:
    explanation = told(ZONES, gang, busy)
    assert (str(explanation.code), explanation.waiting_helps) == ("ExceedsCluster", "no")
    assert f"hold {fitting} even if" in explanation.message or f"Only {fitting} of the" in explanation.message
    assert rule in explanation.message
    assert any(f"at most {fitting} pods" in remedy for remedy in explanation.remedies)


@pytest.mark.parametrize(
    "gang",
    [
        of_one_class(3, apart(HOST)),
        of_one_class(3, PORT),
        of_sizes(5, 5, 5, 3),
        of_sizes(8, 8, 8),
    ],
)
def test_gang_that_waits_for_another_is_told_so(gang: Callable[[Cluster], object]) -> None:
    explanation = told(ZONES, gang, "cpu=8")
    assert explanation.waiting_helps == "yes"


def test_gang_that_a_cordoned_node_would_hold_is_not_told_that_it_never_starts() -> None:
    explanation = told(("n1 cpu=8", "n2 cpu=8 cordoned"), of_one_class(2, PORT))
    assert (str(explanation.code), explanation.waiting_helps) == ("NodeUnschedulable", "maybe")
    assert told(("n1 cpu=8", "n2 cpu=8 cordoned"), of_sizes(5, 4)).waiting_helps == "maybe"


def test_members_that_run_keep_their_places() -> None:
    c = Cluster().queues("default").nodes("n1 cpu=8", "n2 cpu=8")
    c.gang("g", 2, PORT)
    c.cycle()
    c.remove_node("n2")
    c.remove_task("g-1")
    c.add_tasks("g", 1, PORT).cycle()
    explanation = c.explain("g")
    assert (str(explanation.code), explanation.waiting_helps) == ("ExceedsCluster", "no")
