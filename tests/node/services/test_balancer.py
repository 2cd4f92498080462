"""Choice of backends."""

from __future__ import annotations

from windlass.node.services.balancer import Balancer

A, B, C = ("10.0.0.1", 80), ("10.0.0.2", 80), ("10.0.0.3", 80)


def test_backends_take_turns_and_the_others_are_tried_after_the_first() -> None:
    balancer = Balancer([A, B, C])
    orders = [balancer.order("c", 0.0) for _ in range(4)]
    assert [order[0] for order in orders] == [A, B, C, A]
    assert all(sorted(order) == [A, B, C] for order in orders)
    assert Balancer([]).order("c", 0.0) == []


def test_a_client_keeps_its_backend_until_the_time_is_over() -> None:
    balancer = Balancer([A, B, C], 60.0)
    first = balancer.order("c", 0.0)[0]
    balancer.connected("c", first, 0.0)
    assert [balancer.order("c", at)[0] for at in (1.0, 30.0, 60.0)] == [first] * 3
    assert balancer.order("d", 30.0)[0] != first
    balancer.connected("c", first, 50.0)
    assert balancer.order("c", 100.0)[0] == first
    assert balancer.order("c", 111.0)[0] != first


def test_a_client_leaves_a_backend_that_is_gone() -> None:
    balancer = Balancer([A, B], 60.0)
    balancer.connected("c", A, 0.0)
    balancer.change([B, C], 60.0)
    assert A not in balancer.order("c", 1.0)
    balancer.connected("c", C, 1.0)
    balancer.change([B, C], 0.0)
    assert {balancer.order("c", 2.0)[0] for _ in range(2)} == {B, C}
