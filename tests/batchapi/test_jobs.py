"""AIGCJob of a batch, and what its end means for the batch."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import PRIORITY_CLASSES, Resource
from windlass.batchapi.__main__ import check_target, listen, main, parser, start
from windlass.batchapi.jobs import advance, end, job_of
from windlass.batchapi.objects import WINDOW_SECONDS, StoredBatch

BATCH = StoredBatch(
    "batch_1", "/v1/chat/completions", "file-1", 1000, job="ns/batch-1", status="in_progress", total=10
)


def test_workers_reach_a_server_on_the_loopback_of_their_node() -> None:
    def template(url: str) -> object:
        return job_of(BATCH, "ns", "/in", "/out/rows.jsonl", url, {})["spec"].get("template")

    for url in ("http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:1/v1"):
        assert template(url)["spec"]["hostNetwork"] is True  # type: ignore[index]
    assert template("http://models.example:8000/v1") is None


def test_settings_choose_queue_and_priority() -> None:
    spec = job_of(BATCH, "ns", "/in", "/out", "http://m/v1", {"queue": "night", "priorityClass": "high"})[
        "spec"
    ]
    assert (spec["queue"], spec["priorityClass"], spec["input"]["idField"]) == ("night", "high", "custom_id")
    assert job_of(BATCH, "ns", "/in", "/out", "http://m/v1", {})["spec"]["priorityClass"] == "low"


@pytest.mark.parametrize(
    ("status", "job", "after"),
    [
        ("in_progress", {"status": {"phase": "Running", "items": {"total": 10, "done": 4}}}, "in_progress"),
        ("in_progress", {"status": {"phase": "Succeeded"}}, "finalizing"),
        ("in_progress", {"status": {"phase": "Failed"}}, "finalizing"),
        ("in_progress", None, "failed"),
        ("cancelling", {"status": {"phase": "Running"}}, "cancelling"),
        ("cancelling", None, "finalizing"),
        ("completed", None, "completed"),
    ],
)
def test_a_batch_follows_its_job(status: str, job: dict[str, object] | None, after: str) -> None:
    assert advance(replace(BATCH, status=status), job, 2000).status == after


def test_the_end_counts_what_the_files_have() -> None:
    late = BATCH.created_at + WINDOW_SECONDS
    assert end(BATCH, 9, 1, 2000).status == "completed"
    assert end(BATCH, 5, 0, late).status == "expired"
    assert end(BATCH, 0, 0, 2000).status == "failed"
    assert end(replace(BATCH, cancelling_at=1500), 5, 0, 2000).status == "cancelled"


def test_options_that_cannot_be_served_are_told(tmp_path: Path) -> None:
    (taken,) = listen("127.0.0.1:0")
    port = taken.getsockname()[1]
    good = "http://127.0.0.1:8000/v1"
    for backend, address, code, words in (
        (good, f"127.0.0.1:{port}", "WL-PORT-409", f"port {port} is in use"),
        (good, "8321x", "WL-USE-400", "--listen 8321x is not an address"),
        ("127.0.0.1:8000", "127.0.0.1:0", "WL-USE-400", "--backend 127.0.0.1:8000 is not a URL"),
    ):
        given = ["--backend", backend, "--listen", address, "--folder", str(tmp_path)]
        with pytest.raises(WindlassError, match=words) as told:
            start(parser().parse_args(given))
        assert told.value.code == code
    taken.close()
    for folder in ("/proc/x", str(Path(__file__) / "below")):
        given = ["--backend", good, "--listen", "127.0.0.1:0", "--folder", folder]
        with pytest.raises(WindlassError, match=f"{folder} cannot hold the files and batches"):
            start(parser().parse_args(given))
    with pytest.raises(WindlassError, match="cannot listen"):
        listen("192.0.2.1:80")
    (loopback,) = listen("0")
    assert loopback.getsockname()[0] == "127.0.0.1"
    loopback.close()


async def test_what_the_options_name_must_exist() -> None:
    for option, code in (
        ("--queue=nope", "WL-QUEUE-404"),
        ("--namespace=nope", "WL-NAMESPACE-404"),
        ("--priority=nope", "WL-OBJECT-404"),
    ):
        with pytest.raises(WindlassError, match='"nope" does not exist') as told:
            await check_target(_Present(), options(option))  # type: ignore[arg-type]
        assert told.value.code == code
        await check_target(_Present(forbidden=True), options(option))  # type: ignore[arg-type]
    await check_target(_Present(), options("--queue=default", "--priority=high"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "words"), [([], "--backend is missing"), (["--foo"], "--foo")])
def test_wrong_options_are_told_as_by_all_commands(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.umask", lambda _: 0o022)  # the command's is not that of this process
    assert main([*given, *(["--backend", "http://127.0.0.1:1"] if given else [])]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error[WL-USE-400]: ")
    assert words in told
    assert "try: windlass batch-api --help" in told


def options(*given: str) -> argparse.Namespace:
    return parser().parse_args(["--backend", "http://127.0.0.1:1", *given])


class _Present:
    """Client of a server with one object of each kind."""

    def __init__(self, forbidden: bool = False) -> None:
        self._forbidden = forbidden

    async def list(self, resource: Resource) -> Any:
        name = "aigc-high" if resource is PRIORITY_CLASSES else "default"
        return SimpleNamespace(items=[{"metadata": {"name": name}}])

    async def find(self, resource: Resource, name: str) -> Any:
        if self._forbidden:
            raise StatusError({"code": 403, "message": "no"})
        return next(
            (one for one in (await self.list(resource)).items if one["metadata"]["name"] == name), None
        )
