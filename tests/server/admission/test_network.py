"""Network presets of new pods."""

from __future__ import annotations

from typing import Any

import pytest
from memory_admission import World, pod

from windlass.api import annotations as names
from windlass.api import resources

Obj = dict[str, Any]


@pytest.fixture
def world() -> World:
    return World()


def preset_pod(preset: str = "rdma", **container: Any) -> Obj:
    made = pod()
    made["metadata"]["annotations"] = {names.NETWORK_PRESET: preset}
    made["spec"]["containers"][0].update(container)
    return made


def variables(stored: Obj) -> dict[str, str]:
    env = stored["spec"]["containers"][0].get("env") or ()
    return {entry["name"]: entry["value"] for entry in env}


def test_f41_pod_of_a_manifest_gets_the_variables(world: World) -> None:
    stored = world.create(preset_pod(env=[{"name": "NCCL_DEBUG", "value": "WARN"}])).object
    assert variables(stored) == {
        "NCCL_DEBUG": "WARN",
        "NCCL_IB_DISABLE": "0",
        "NCCL_SOCKET_IFNAME": "ib0",
        "NCCL_ALGO": "Ring,Tree",
    }
    assert stored["metadata"]["annotations"][names.PODSET_PREFERRED] == names.RDMA_CAPABLE


def test_variables_of_a_config_map_are_left_alone(world: World) -> None:
    settings = {"metadata": {"name": "nccl", "namespace": "default"}, "data": {"DEBUG": "TRACE"}}
    world.objects.put(resources.CONFIG_MAPS, settings)
    sources = [{"prefix": "NCCL_", "configMapRef": {"name": "nccl"}}, {"secretRef": {"name": "absent"}}]
    stored = world.create(preset_pod(envFrom=sources)).object
    assert set(variables(stored)) == {"NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_ALGO"}


def test_unknown_preset_is_reported(world: World) -> None:
    reviewed = world.create(preset_pod("roce"))
    assert variables(reviewed.object) == {}
    assert any("'roce' is not a network preset and has no effect; use rdma" in w for w in reviewed.warnings)
