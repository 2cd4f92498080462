"""Fetch of models from folders and servers: once, verified, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from windlass.modelcache.__main__ import main
from windlass.modelcache.fetch import Fetched, checksum, fetch
from windlass.modelcache.folder import CacheFolder, ModelCacheError, ModelReference

WEIGHTS = bytes(range(256)) * 9000
PLENTY = (10**12, 10**12)


class Server(ThreadingHTTPServer):
    """Hub and web server. ``cut``: each answer ends after so many bytes."""

    cut: int | None = None
    ranges = True
    requests: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.requests.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
        if self.path.startswith("/api/models/acme/tiny/revision/"):
            siblings = [
                {"rfilename": "weights.bin", "size": len(WEIGHTS)},
                {"rfilename": "conf/a.json", "size": 2},
            ]
            return self.answer(json.dumps({"siblings": siblings}).encode())
        if self.path.endswith("a.json"):
            return self.answer(b"{}")
        if self.path.endswith("weights.bin"):
            return self.answer(WEIGHTS)
        self.send_error(404)

    def answer(self, body: bytes) -> None:
        wanted = self.headers.get("Range") if self.server.ranges else None
        offset = int(wanted.split("=")[1].rstrip("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body) - offset))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[offset:][: self.server.cut])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as found:
        found.requests = []
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def url(server: Server, path: str = "/weights.bin") -> str:
    return f"http://127.0.0.1:{server.server_address[1]}{path}"


def get(root: Path, model: ModelReference, **given: object) -> Fetched:
    return fetch(CacheFolder(root), model, space=lambda _: PLENTY, **given)  # type: ignore[arg-type]


def left_over(root: Path) -> list[str]:
    return sorted(each.name for each in root.iterdir() if not each.name.endswith(".lock"))


def test_a_folder_is_copied_and_found_again(tmp_path: Path) -> None:
    (tmp_path / "m" / "sub").mkdir(parents=True)
    (tmp_path / "m" / "sub" / "w").write_bytes(b"abc")
    (tmp_path / "m" / "config").write_bytes(b"d")
    model = ModelReference("tiny", (tmp_path / "m").as_uri())
    first, second = get(tmp_path / "c", model), get(tmp_path / "c", model)
    assert (first.reused, second.reused, first.model.bytes) == (False, True, 4)
    with CacheFolder(tmp_path / "c").use(model.key) as files:
        assert (files / "sub" / "w").read_bytes() == b"abc"
    lines = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n"
        for name, data in [("config", b"d"), ("sub/w", b"abc")]
    )
    assert first.model.sha256 == hashlib.sha256(lines.encode()).hexdigest()


def test_an_interrupted_transfer_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cut = len(WEIGHTS) // 3 + 1
    model = ModelReference("w", url(server), sha256=hashlib.sha256(WEIGHTS).hexdigest())
    assert get(tmp_path / "c", model).model.bytes == len(WEIGHTS)
    asked = [each for each in server.requests if each.startswith("GET")]
    assert asked == [
        "GET /weights.bin",
        f"GET /weights.bin bytes={server.cut}-",
        f"GET /weights.bin bytes={2 * server.cut}-",
    ]


def test_a_server_that_ignores_the_offset_gives_no_wrong_file(server: Server, tmp_path: Path) -> None:
    server.cut, server.ranges = 1000, False
    with pytest.raises(ModelCacheError, match="does not serve a part") as caught:
        get(tmp_path / "c", ModelReference("w", url(server)))
    assert caught.value.reason == "NoRange"
    assert left_over(tmp_path / "c") == []


def test_a_repository_of_a_hub(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", url(server, ""))
    found = get(tmp_path / "c", ModelReference("tiny", "hf://acme/tiny", "v1"))
    assert (found.model.bytes, server.requests[0]) == (
        len(WEIGHTS) + 2,
        "GET /api/models/acme/tiny/revision/v1?blobs=true",
    )
    assert (CacheFolder(tmp_path / "c").files_of(found.model.key) / "conf" / "a.json").read_bytes() == b"{}"


@pytest.mark.parametrize(
    ("source", "sha256", "reason"),
    [
        ("s3://bucket/model", "", "BadSource"),
        ("smollm2", "", "BadSource"),
        ("file:///nothing/of/this/name", "", "NotFound"),
        ("SERVER/absent", "", "NotFound"),
        ("http://127.0.0.1:1/x", "", "Unreachable"),
        ("SERVER/weights.bin", "0" * 64, "Corrupt"),
    ],
)
def test_what_cannot_be_had_leaves_nothing(
    server: Server, tmp_path: Path, source: str, sha256: str, reason: str
) -> None:
    model = ModelReference("w", source.replace("SERVER", url(server, "")), sha256=sha256)
    with pytest.raises(ModelCacheError) as caught:
        get(tmp_path / "c", model)
    assert caught.value.reason == reason
    assert left_over(tmp_path / "c") == []


def test_many_at_once_fetch_once(server: Server, tmp_path: Path) -> None:
    model = ModelReference("w", url(server))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: get(tmp_path / "c", model), range(8)))
    assert sorted(each.reused for each in found) == [False] + [True] * 7
    assert len([each for each in server.requests if each.startswith("GET")]) == 1


def test_room_is_made_by_the_least_recently_used_that_nobody_uses(tmp_path: Path) -> None:
    folder, total = CacheFolder(tmp_path / "c"), 1000
    models = []
    for age, name in enumerate(["pinned", "used", "old", "young"]):
        (tmp_path / name).write_bytes(b"x" * 100)
        model = ModelReference(name, (tmp_path / name).as_uri())
        fetch(folder, model, pin=name == "pinned", space=lambda _: PLENTY)
        os.utime(folder.root / model.key, (age, age))
        models.append(model)
    (tmp_path / "new").write_bytes(b"x" * 100)
    with folder.use(models[1].key):
        found = fetch(
            folder, ModelReference("new", (tmp_path / "new").as_uri()), space=lambda _: (200, total)
        )
        assert found.evicted == (models[2].key,)
        (tmp_path / "huge").write_bytes(b"x" * 900)
        huge = ModelReference("huge", (tmp_path / "huge").as_uri())
        with pytest.raises(ModelCacheError, match="are pinned or in use") as caught:
            fetch(folder, huge, space=lambda _: (300, total))
    assert caught.value.reason == "NoRoom"
    assert [each.name for each in folder.models()] == ["new", "pinned", "used", "young"]


def test_a_model_of_another_checksum_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"one")
    source = (tmp_path / "m").as_uri()
    get(tmp_path / "c", ModelReference("m", source))
    (tmp_path / "m").write_bytes(b"two")
    wanted = checksum([("m", hashlib.sha256(b"two").hexdigest())])
    found = get(tmp_path / "c", ModelReference("m", source, sha256=wanted))
    assert (found.reused, found.model.sha256) == (False, wanted)


def test_the_program_prints_and_writes_its_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m").write_bytes(b"abc")
    asked = [
        "--root",
        str(tmp_path / "c"),
        "--name",
        "m",
        "--floor",
        "0",
        "--result",
        str(tmp_path / "result"),
    ]
    assert main([*asked, "--source", (tmp_path / "m").as_uri()]) == 0
    result = json.loads((tmp_path / "result").read_text())
    assert (result["bytes"], result["reused"], json.loads(capsys.readouterr().out.splitlines()[-1])) == (
        3,
        False,
        result,
    )
    assert main([*asked, "--source", "file:///nothing"]) == 1
    assert json.loads((tmp_path / "result").read_text())["reason"] == "NotFound"


def test_a_model_in_use_is_found_without_a_wait(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"abc")
    model = ModelReference("m", (tmp_path / "m").as_uri())
    get(tmp_path / "c", model)
    with CacheFolder(tmp_path / "c").use(model.key):
        assert get(tmp_path / "c", model).reused
