"""Network preset ``rdma``: variables of NCCL and the preference for one RDMA island."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windlass.api import annotations as names
from windlass.api import network_presets
from windlass.api.network_presets import NCCL_VARIABLES, apply_rdma

Obj = dict[str, Any]
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def template(env: list[Obj] | None = None, **annotations: str) -> Obj:
    container = {"name": "main", "image": "x", **({"env": env} if env is not None else {})}
    metadata = {"annotations": {key.replace("__", "/"): text for key, text in annotations.items()}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def environment(pod: Obj) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}


def test_f41_four_variables_are_added() -> None:
    pod = template()
    apply_rdma(pod)
    assert environment(pod) == {
        "NCCL_IB_DISABLE": "0",
        "NCCL_SOCKET_IFNAME": "ib0",
        "NCCL_DEBUG": "INFO",
        "NCCL_ALGO": "Ring,Tree",
    }


@given(st.sets(st.sampled_from(sorted(NCCL_VARIABLES))), st.sets(st.sampled_from(sorted(NCCL_VARIABLES))))
def test_f41_values_of_the_user_are_left_alone(own: set[str], elsewhere: set[str]) -> None:
    pod = template([{"name": name, "value": "mine"} for name in sorted(own)])
    apply_rdma(pod, {"main": elsewhere})
    found = environment(pod)
    assert {name for name, text in found.items() if text == "mine"} == own
    assert set(found) == own | (set(NCCL_VARIABLES) - elsewhere)
    again = copy.deepcopy(pod)
    apply_rdma(again, {"main": elsewhere})
    assert again == pod  # idempotent


def test_f75_one_rdma_island_is_preferred() -> None:
    pod = template()
    apply_rdma(pod)
    assert pod["metadata"]["annotations"] == {names.PODSET_PREFERRED: names.RDMA_CAPABLE}
    (term,) = pod["spec"]["affinity"]["nodeAffinity"][_PREFERRED]
    assert {e["key"] for e in term["preference"]["matchExpressions"]} == {names.RDMA_CAPABLE}


def test_topology_of_the_user_is_kept() -> None:
    pod = template()
    pod["metadata"]["annotations"] = {names.PODSET_REQUIRED: "rack"}
    apply_rdma(pod)
    assert pod["metadata"]["annotations"] == {names.PODSET_REQUIRED: "rack"}


def test_node_with_the_value_false_is_in_no_island() -> None:
    assert network_presets.island_of({names.RDMA_CAPABLE: "false"}) == ""
    assert network_presets.island_of({}) == ""
    assert network_presets.island_of({names.RDMA_CAPABLE: "true"}) == "true"
