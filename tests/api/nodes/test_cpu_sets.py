"""CPU sets in a pod's status."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.api.nodes.cpu_sets import cpu_list, cpu_status, cpus_of_pod, cpus_text


@pytest.mark.parametrize(
    ("cpus", "expected"), [((), ""), ((3,), "3"), ((0, 1, 2, 3, 8), "0-3,8"), ((5, 1, 4), "1,4-5")]
)
def test_list_with_ranges(cpus: tuple[int, ...], expected: str) -> None:
    assert cpu_list(cpus) == expected


def pod(phase: str = "Running", **cpus: tuple[int, ...]) -> dict[str, Any]:
    statuses = [{"name": name, "allocatedResourcesStatus": [cpu_status(ids)]} for name, ids in cpus.items()]
    return {"status": {"phase": phase, "containerStatuses": statuses}}


def test_a_running_pod_shows_its_core_sets() -> None:
    """F53: read back as `windlass show` prints them."""
    assert cpus_of_pod(pod(main=(0, 1), side=(2,))) == {"main": "0-1", "side": "2"}
    assert cpus_text(pod(main=(0, 1))) == "0-1"
    assert cpus_text(pod(main=(0, 1), side=(2,))) == "main 0-1, side 2"
    assert cpus_text(pod("Succeeded", main=(0, 1))) == ""
    assert cpus_text({}) == ""
