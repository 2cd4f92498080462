"""Checkpoints of a pod: the hook in its two forms, places on the machine, and what is reported."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from windlass.api import annotations as names
from windlass.kits.clock import FakeClock
from windlass.node.pods.checkpoints import CheckpointWatch, hook_handler, newest_time, on_machine, with_hook


def pod(**annotations: str) -> dict[str, Any]:
    metadata = {"name": "p", "namespace": "default", "uid": "u", "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}, {"name": "side"}]}}


@pytest.mark.parametrize(
    ("text", "handler"),
    [
        ("", None),
        ("save --now", {"exec": {"command": ["sh", "-c", "save --now"]}}),
        ("http://:8080/save?now=1", {"httpGet": {"scheme": "HTTP", "port": 8080, "path": "/save?now=1"}}),
        ("https://localhost:1", {"httpGet": {"scheme": "HTTPS", "port": 1, "path": "/"}}),
    ],
)
def test_a_hook_is_a_command_or_a_request(text: str, handler: dict[str, Any] | None) -> None:
    declared = pod(**{names.CHECKPOINT_HOOK: text})
    assert hook_handler(declared) == handler
    main, side = declared["spec"]["containers"]
    assert with_hook(declared, main).get("lifecycle", {}).get("checkpoint") == handler
    assert with_hook(declared, side) is side


def test_paths_are_found_through_the_mounts() -> None:
    spec = {
        "cwd": "/work",
        "mounts": [{"source": "/m/a", "target": "/data"}, {"source": "/m/b", "target": "/data/in"}],
    }
    for path, place in (
        ("/data/x", "/m/a/x"),
        ("/data/in/y", "/m/b/y"),
        ("/data", "/m/a"),
        ("/database", "/database"),
        ("out", "/work/out"),
    ):
        assert on_machine(path, spec) == Path(place)


def test_the_newest_file_counts(tmp_path: Path) -> None:
    assert newest_time(tmp_path / "nothing") == 0.0
    assert newest_time(tmp_path) == 0.0
    (tmp_path / "deep/er").mkdir(parents=True)
    for name, time in (("deep/er/a", 100), ("deep/b", 300), ("c", 200)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time, time))
    assert newest_time(tmp_path) == 300.0
    assert newest_time(tmp_path / "c") == 200.0


class Patches:
    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    async def patch(self, _resource: object, _name: str, patch: dict[str, Any], _namespace: str) -> None:
        self.reports.append(json.loads(patch["metadata"]["annotations"][names.CHECKPOINT_REPORT]))


async def test_reports_tell_the_signal_and_what_landed_after_it(tmp_path: Path) -> None:
    clock, client = FakeClock(), Patches()
    declared = pod(**{names.CHECKPOINT_PATH: str(tmp_path)})
    tasks: list[asyncio.Task[None]] = []
    watch = CheckpointWatch(
        lambda: declared,
        client,  # type: ignore[arg-type]
        clock,
        lambda: {},
        lambda work: tasks.append(asyncio.ensure_future(work)) or tasks[-1],
    )
    old = tmp_path / "old"
    old.touch()
    os.utime(old, (clock.now() - 50, clock.now() - 50))
    watch.started()
    signalled = clock.now() + 1
    await clock.advance(1)
    watch.signalled()
    watch.signalled()
    await asyncio.sleep(0)
    new = tmp_path / "new"
    new.touch()
    os.utime(new, (signalled + 2, signalled + 2))
    await watch.finish()
    await watch.finish()
    for task in tasks:
        task.cancel()
    assert client.reports == [
        {"signalled": signalled, "watched": True},
        {"signalled": signalled, "saved": signalled + 2, "seconds": 2.0, "watched": True},
    ]


async def test_checkpoint_of_a_hook_is_not_missed_when_sigterm_comes_late() -> None:
    clock, client = FakeClock(), Patches()
    declared = pod(**{names.CHECKPOINT_HOOK: "save"})
    watch = CheckpointWatch(
        lambda: declared, client, clock, lambda: {}, lambda work: asyncio.ensure_future(work)
    )  # type: ignore[arg-type]
    watch.started()
    await clock.advance(5)
    saved = clock.now()
    watch.hook_passed(2.0)
    await clock.advance(3)
    watch.signalled()
    await watch.finish()
    assert client.reports[-1] == {"signalled": saved, "saved": saved, "seconds": 2.0, "watched": True}


async def test_pods_that_declare_nothing_are_not_written(tmp_path: Path) -> None:
    client = Patches()
    watch = CheckpointWatch(pod, client, FakeClock(), lambda: {}, lambda work: asyncio.ensure_future(work))  # type: ignore[arg-type]
    watch.started()
    watch.signalled()
    await watch.finish()
    assert client.reports == []
