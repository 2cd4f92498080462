"""Beside kube-scheduler on the same nodes; `make chaos` plays 10 000 pods."""

from __future__ import annotations

from pathlib import Path

import pytest
from realkube import REQUIRED, need
from scheduler_processes import KubeScheduler
from side_by_side import SideBySide

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(400)]


def need_binaries() -> None:
    need(*REQUIRED[:2], KubeScheduler.BINARY)


def test_half_the_pods_by_each_and_no_node_stays_over_what_it_has(tmp_path: Path) -> None:
    need_binaries()
    result = SideBySide(tmp_path, pods=400, nodes=40, seed=1).run(300)
    assert result.bound_by == {"default-scheduler": 200, "windlass": 200}
    assert not result.problems
    assert not result.lasting


def test_with_the_bind_guard_no_node_ever_holds_more_than_it_has(tmp_path: Path) -> None:
    """Far more comes than the nodes hold. Not for a moment, and none of our pods is lost for it."""
    need_binaries()
    result = SideBySide(tmp_path, pods=300, nodes=20, seed=2, guard=True).run(300)
    assert result.bound_by == {"default-scheduler": 150, "windlass": 150}
    assert not result.problems
    assert not result.excesses
    assert not result.evicted
    assert result.refused
