"""Logs of pods that were deleted with the end of their job."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job
from windlass.cli.jobs.logs.log_lines import LogView
from windlass.cli.jobs.logs.retained_logs import find

UID = "0b4c2d1e-0000-4000-8000-00000000000{}"


def log_of(folder: Path, pod: str, number: int) -> None:
    place = folder / "node" / "logs" / f"default_{pod}_{UID.format(number)}" / "main"
    place.mkdir(parents=True)
    (place / "0.log").write_bytes(b"")


@pytest.mark.parametrize(
    ("role", "pod", "rank"),
    [
        ("Worker", "t-worker-1", "Worker-1"),
        ("w", "t-w-0-1-ab2cd", "w-0-1"),
        ("node", "t-node-0-2-xyz9k", "node-0-2"),
    ],
)
def test_each_kind_names_its_pods_by_role(tmp_path: Path, role: str, pod: str, rank: str) -> None:
    log_of(tmp_path, pod, 1)
    log_of(tmp_path, f"t-other-{pod}", 2)
    log_of(tmp_path, f"{pod}-of-another", 3)
    target = SimpleNamespace(remote=False, state=SimpleNamespace(node=tmp_path / "node"))
    kind = SimpleNamespace(roles=lambda obj: [SimpleNamespace(name=role)])
    job: Any = SimpleNamespace(
        kind="X", definition=kind, name="t", namespace="default", pods=[], created=0.0, obj={}
    )
    found = find(cast(Invocation, SimpleNamespace(target=target)), cast(Job, job), LogView())
    assert [(log.metadata["name"], log.rank) for log in found] == [(pod, rank)]
