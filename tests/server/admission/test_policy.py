"""Writing the scheduler's ConfigMap: what is read differently is said at once."""

from __future__ import annotations

from typing import Any

import acceptance_manifests
import pytest
from memory_admission import World

from windlass.api import resources
from windlass.model.scheduler_config import described, parse, text_of


@pytest.fixture
def world() -> World:
    found = World()
    found.objects.put(resources.NAMESPACES, {"metadata": {"name": "volcano-system"}})
    return found


def config_map(text: str, name: str = "volcano-scheduler-config") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "volcano-system"},
        "data": {"volcano-scheduler.conf": text},
    }


@pytest.mark.parametrize("number", [7, 21])
def test_acceptance_files_get_the_specified_warnings(world: World, number: int) -> None:
    (document,) = acceptance_manifests.documents(number)
    warnings = world.create(document).warnings
    assert acceptance_manifests.all_there(warnings, acceptance_manifests.expected_warnings(number)), warnings


def test_weights_are_listed_with_the_plugins() -> None:
    (document,) = acceptance_manifests.documents(21)
    assert described(parse(text_of(document["data"])).config) == (
        "actions enqueue, allocate, backfill | predicates; nodeorder; binpack | "
        "gpu-aware (gpuMemoryWeight 1.0, gpuComputeWeight 0.8, interGPUCommsWeight 0.5)"
    )


def test_invalid_scheduler_configuration_causes_a_warning(world: World) -> None:
    (warning,) = world.create(config_map("actions: fly\n")).warnings
    assert warning.startswith(
        "advice: the scheduler will not apply this configuration: line 1: actions: names 'fly'"
    )
    assert world.create(config_map("actions: fly\n", name="other")).warnings == []


def test_config_map_in_another_namespace_causes_a_warning(world: World) -> None:
    elsewhere = config_map("actions: fly\n")
    elsewhere["metadata"]["namespace"] = "default"
    words = "advice: this ConfigMap is not used: the scheduler reads volcano-system/volcano-scheduler-config"
    assert world.create(elsewhere).warnings == [words]


def test_changed_file_gets_the_warning_too(world: World) -> None:
    good = config_map("actions: allocate\ntiers:\n- plugins:\n  - name: gang\n")
    assert world.create(good).warnings == []
    good["data"]["volcano-scheduler.conf"] += "  - name: drf\n    args: '{}'\n"
    assert world.update(good).warnings == ["alias: args as a JSON text -> arguments as a map"]


FLAGS = (
    "--enable-queue-schedule=true\n--cache-pod-group-interval=30s\n--scheduler-worker-threads=16\n"
    "--bind-worker-threads=8\n--min-resync-interval=12h\n"
)


def test_y22_each_flag_and_the_namespace_cause_a_warning(world: World) -> None:
    elsewhere = config_map(FLAGS)
    elsewhere["metadata"]["namespace"] = "default"
    warnings = world.create(elsewhere).warnings
    assert len(warnings) == 6
    assert warnings[2] == "alias: --scheduler-worker-threads=16 -> engine option scheduler-worker-threads"
    assert warnings[5] == (
        "default: namespace default instead of volcano-system -> read as engine options as well, the policy of"
        " volcano-system stays in force"
    )


def test_y22_of_the_acceptance_manifests_gets_the_specified_warnings(world: World) -> None:
    (document,) = acceptance_manifests.documents(22)
    document["metadata"].setdefault("namespace", "default")
    warnings = world.create(document).warnings
    assert acceptance_manifests.all_there(warnings, acceptance_manifests.expected_warnings(22)), warnings


def test_flags_in_the_scheduler_s_own_namespace_replace_the_policy(world: World) -> None:
    warnings = world.create(config_map(FLAGS)).warnings
    assert warnings[-1] == "default: no policy inside -> the built-in policy takes over"
    assert len(warnings) == 6


def test_wrong_flags_are_left_out_with_a_reason(world: World) -> None:
    first, second, _ = world.create(config_map("--bind-worker-threads=many\n--v=3\n")).warnings
    assert first == ("default: --bind-worker-threads=many -> left out: 'many' is not a number of threads")
    assert second.startswith("default: --v=3 -> left out: no engine option has this name (known: ")
