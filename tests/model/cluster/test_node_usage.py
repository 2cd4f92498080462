"""Node usage as the API server shows it, and the binding that exceeds the capacity."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kubeobjects import node, pod

from windlass.api import views
from windlass.model.cluster.node_usage import NodeUsage


def view(name: str, **fields: Any) -> views.Pod:
    return views.decode_pod(views.encode(pod(name, **fields)))


def node_view(**fields: Any) -> views.NodeObject:
    return views.decode_node(views.encode(node("n", **fields)))


def test_the_later_of_two_bindings_overflows() -> None:
    ledger, where = NodeUsage(), node_view(gpus=1)
    first, second = view("a", node="n"), view("b", node="n")
    ledger.change(None, first)
    assert ledger.overflow(first, where) is None
    ledger.change(None, second)
    assert ledger.overflow(second, where) == "node n holds 2 of 1 nvidia.com/gpu"
    ledger.change(first, view("a", node="n", phase="Succeeded"))
    assert ledger.overflow(second, where) is None


def test_device_allocated_twice_overflows_although_amounts_fit() -> None:
    ledger, where = NodeUsage(), node_view(gpus=8)
    notes = {"windlass.dev/devices": "3"}
    for name in ("a", "b"):
        ledger.change(None, view(name, node="n", annotations=notes))
    found = ledger.overflow(view("b", node="n", annotations=notes), where)
    assert found == "device 3 (nvidia.com/gpu) of node n is allocated twice"


def share(name: str, part: str, **annotations: str) -> views.Pod:
    notes = {"windlass.dev/devices": "0", "windlass.dev/device-shares": part, **annotations}
    return view(name, node="n", requests={"cpu": "1"}, annotations={"gpu-fraction": "0.5", **notes})


def card_node() -> views.NodeObject:
    obj = node("n", gpus=1)
    obj["metadata"]["labels"]["nvidia.com/gpu.memory"] = "16384"
    return views.decode_node(views.encode(obj))


def test_shares_of_a_device_sum_to_at_most_one() -> None:
    ledger = NodeUsage()
    first, second = share("a", "0:500/8192"), share("b", "0:500/8192")
    for one in (first, second):
        ledger.change(None, one)
        assert ledger.overflow(one, card_node()) is None
    third = share("c", "0:100/0")
    ledger.change(None, third)
    assert (
        ledger.overflow(third, card_node()) == "device 0 (nvidia.com/gpu) of node n is allocated to 1.1 of 1"
    )
    ledger.change(third, None)
    fourth = share("d", "0:0/1024")
    ledger.change(None, fourth)
    assert (
        ledger.overflow(fourth, card_node())
        == "device 0 (nvidia.com/gpu) of node n is allocated to 17408 MiB of 16384 MiB"
    )


def test_device_is_never_both_whole_and_shared() -> None:
    ledger = NodeUsage()
    ledger.change(None, share("a", "0:100/0"))
    whole = view("b", node="n", annotations={"windlass.dev/devices": "0"})
    ledger.change(None, whole)
    assert ledger.overflow(whole, card_node()) == "device 0 (nvidia.com/gpu) of node n is allocated twice"


def test_slices_of_one_device_do_not_overlap() -> None:
    ledger = NodeUsage()
    slices = [
        view(
            name,
            node="n",
            requests={"nvidia.com/mig-1g.10gb": "1"},
            annotations={"windlass.dev/devices": "0", "windlass.dev/device-slices": f"0:1g.10gb@{start}"},
        )
        for name, start in (("a", 6), ("b", 5), ("c", 5))
    ]
    for one in slices[:2]:
        ledger.change(None, one)
        assert ledger.overflow(one, card_node()) is None
    ledger.change(None, slices[2])
    assert ledger.overflow(slices[2], card_node()) == "device 0 (nvidia.com/gpu) of node n is allocated twice"


def test_pods_of_one_claim_use_a_device_together() -> None:
    ledger = NodeUsage()
    notes = {"windlass.dev/devices": "0"}
    claims = [{"name": "g", "resourceClaimName": "ours"}]
    for name in "ab":
        one = view(name, node="n", requests={"cpu": "1"}, annotations=notes, resourceClaims=claims)
        ledger.change(None, one)
        assert ledger.overflow(one, card_node()) is None
    other = view("c", node="n", annotations=notes)
    ledger.change(None, other)
    assert ledger.overflow(other, card_node()) == "device 0 (nvidia.com/gpu) of node n is allocated twice"


def test_share_requests_are_not_amounts_of_the_node() -> None:
    ledger = NodeUsage()
    one = view("a", node="n", requests={"aliyun.com/gpu-mem": "10", "cpu": "1"})
    ledger.change(None, one)
    assert ledger.overflow(one, card_node()) is None


def test_number_of_pods_and_unknown_nodes() -> None:
    ledger = NodeUsage()
    pods = [view(str(i), node="n", requests={}) for i in range(3)]
    for one in pods:
        ledger.change(None, one)
    assert ledger.overflow(pods[2], node_view(pods=2)) == "node n holds 3 of 2 pods"
    assert ledger.overflow(pods[2], None) is None


_states = st.tuples(
    st.sampled_from(["", "n", "m"]),
    st.sampled_from(["Pending", "Running", "Failed"]),
    st.sampled_from(["", "0", "1"]),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | _states), max_size=12))
def test_usage_equals_that_of_the_final_pods(history: list[tuple[str, Any]]) -> None:
    ledger, pods = NodeUsage(), {}
    for name, state in history:
        old = pods.pop(name, None)
        new = None
        if state is not None:
            notes = {"windlass.dev/devices": state[2]} if state[2] else {}
            new = pods[name] = view(name, node=state[0], phase=state[1], annotations=notes)
        ledger.change(old, new)
    fresh = NodeUsage()
    for one in pods.values():
        fresh.change(None, one)
    where = {name: node_view(gpus=1) for name in "nm"}
    for one in pods.values():
        if one.node_name:
            assert ledger.overflow(one, where[one.node_name]) == fresh.overflow(one, where[one.node_name])
