"""Messages on NUMA zones that do not fit a pod state true amounts."""

from __future__ import annotations

import pytest

from windlass.plugins.numa.messages import lacking, wanting
from windlass.plugins.numa.zone_usage import NumaService, RowZones
from windlass.spi.numa import (
    AlignmentPolicy,
    ContainerNeed,
    NumaHolding,
    NumaNeed,
    NumaTopology,
    NumaZone,
)

GPU = "nvidia.com/gpu"
SINGLE, RESTRICTED = AlignmentPolicy.SINGLE_NUMA_NODE, AlignmentPolicy.RESTRICTED


def book(policy: AlignmentPolicy, *held: dict[str, int], pod_scope: bool = False) -> RowZones:
    """Two zones of 8 CPUs, 4 devices and 8 bytes; ``held`` of each."""
    amounts = tuple(sorted({"cpu": 8000, GPU: 4000, "memory": 8}.items()))
    found = RowZones(
        NumaTopology(
            (NumaZone(0, amounts, amounts), NumaZone(1, amounts, amounts)), policy, pod_scope=pod_scope
        )
    )
    for number, one in enumerate(held):
        found.change(NumaHolding(((number, tuple(sorted(one.items()))),)), 1)
    return found


def said(of: RowZones, *containers: dict[str, int]) -> str:
    need = NumaNeed(tuple(ContainerNeed(tuple(sorted(c.items()))) for c in containers), guaranteed=True)
    return lacking(of, NumaService(need, of.layout.node.policy))


def test_the_first_amount_that_no_zone_has_is_told_with_what_is_left() -> None:
    busy = book(SINGLE, {"cpu": 6000}, {"cpu": 5000, GPU: 1000})
    assert said(busy, {"cpu": 4000, GPU: 1000}) == (
        "single-numa-node: 4 cpu in one zone: zone 0 has 2 cpu left, zone 1 has 3 cpu left"
    )


def test_more_than_a_zone_ever_has_is_told_so() -> None:
    assert said(book(SINGLE), {"cpu": 9000}) == "single-numa-node: 9 cpu in one zone: no zone has more than 8"


def test_what_fits_alone_but_not_together_is_told_so() -> None:
    busy = book(SINGLE, {"cpu": 6000}, {GPU: 4000})
    assert said(busy, {"cpu": 4000, GPU: 2000}) == (
        "single-numa-node: 4 cpu and 2 nvidia.com/gpu not together in one zone: "
        "zone 0 has 2 cpu and 4 nvidia.com/gpu left, zone 1 has 8 cpu and 0 nvidia.com/gpu left"
    )


def test_amounts_that_need_different_numbers_of_zones_are_told_so() -> None:
    assert said(book(RESTRICTED), {"cpu": 4000, GPU: 6000}) == (
        "restricted: all of it from the same zones, but the fewest that would do differ: "
        "4 cpu by 1 zone, 6 nvidia.com/gpu by 2 zones"
    )


@pytest.mark.parametrize("pod_scope", [True, False])
def test_containers_are_told_of_by_the_scope(pod_scope: bool) -> None:
    text = said(book(SINGLE, pod_scope=pod_scope), *({"cpu": 6000},) * 3)
    whole = "single-numa-node: 18 cpu in one zone: no zone has more than 8"
    assert text == (
        whole if pod_scope else "single-numa-node: its containers do not fit into the zones side by side"
    )


def test_a_node_that_does_not_follow_the_pods_policy() -> None:
    node = book(RESTRICTED).layout.node
    assert (
        wanting(SINGLE, node)
        == "the pod asks for single-numa-node, and the node's kubelet follows restricted"
    )
    assert wanting(SINGLE, None).endswith("nothing is known of the node's NUMA zones")
