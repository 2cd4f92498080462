"""Input artifacts from HTTP, S3 and git: the program that fetches them, and the pod around it."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from workflow_world import WorkflowWorld, captured

from windlass.controllers.workflow.kinds.fetch_script import SCRIPT

KEYS: dict[str, bytes] = {
    "data/one.txt": b"one",
    "data/sub/two.txt": b"two",
    "file": b"content",
}
ACCESS, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "fetch"}
    exec(compile(SCRIPT, "fetch", "exec"), found)
    return found


class _Server(BaseHTTPRequestHandler):
    """Part of S3: objects and lists of two keys a page, signatures as the program computes them are compared."""

    program: dict[str, Any]

    def do_GET(self) -> None:
        address, _, query = self.path.partition("?")
        if address.startswith("/plain/"):
            wanted = "Basic dTpw" if address.endswith("closed") else self.headers.get("Authorization")
            self._answer(200 if self.headers.get("Authorization") == wanted else 401, KEYS["file"])
            return
        url = f"http://{self.headers['Host']}{self.path}"
        now = datetime.datetime.strptime(self.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
        expected = self.program["signed"]("GET", url, {}, "eu-1", ACCESS, SECRET, now)["authorization"]
        if self.headers["Authorization"] != expected:
            self._answer(403, b"")
        elif query:
            after = 1 if "continuation-token" in query else 0
            listed = [key for key in KEYS if key.startswith("data/")][after:]
            more = "<NextContinuationToken>t</NextContinuationToken>" if not after else ""
            shown = "".join(
                f"<Contents><Key>{key}</Key></Contents>" for key in listed[: 1 if not after else None]
            )
            space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
            self._answer(200, f"<ListBucketResult {space}>{shown}{more}</ListBucketResult>".encode())
        else:
            key = address.removeprefix("/bucket/")
            self._answer(200 if key in KEYS else 404, KEYS.get(key, b""))

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(program: dict[str, Any]) -> Iterator[str]:
    _Server.program = program
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def fetch(
    program: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, way: str, source: Any, **more: Any
) -> Path:
    want = {"name": "a", "way": way, "from": source, "whole": False, **more}
    monkeypatch.setenv("WINDLASS_FETCH", json.dumps([want]))
    program["main"](str(folder))
    return folder / "a"


def test_signature_is_that_of_the_published_example(program: dict[str, Any]) -> None:
    """The example "GET Object" of the documentation of Amazon S3."""
    now = datetime.datetime(2013, 5, 24)
    url = "https://examplebucket.s3.amazonaws.com/test.txt"
    found = program["signed"]("GET", url, {"Range": "bytes=0-9"}, "us-east-1", ACCESS, SECRET, now)
    assert found["authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_objects_and_folders_of_a_bucket(
    program: dict[str, Any], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A", ACCESS)
    monkeypatch.setenv("S", SECRET)
    source = {"endpoint": address, "insecure": True, "bucket": "bucket", "region": "eu-1",
              "secrets": {"access": "A", "secret": "S"}}  # fmt: skip
    (tmp_path / "one").mkdir()
    assert (
        fetch(
            program, tmp_path / "one", monkeypatch, "s3", {**source, "key": "file"}, mode=0o755
        ).read_bytes()
        == b"content"
    )
    assert os.access(tmp_path / "one/a", os.X_OK)
    (tmp_path / "two").mkdir()
    folder = fetch(program, tmp_path / "two", monkeypatch, "s3", {**source, "key": "data"})
    assert {str(one.relative_to(folder)) for one in folder.rglob("*.txt")} == {"one.txt", "sub/two.txt"}
    monkeypatch.setenv("S", "wrong")
    with pytest.raises(SystemExit, match="input artifact 'a' cannot be fetched: HTTP Error 403"):
        fetch(program, tmp_path / "three", monkeypatch, "s3", {**source, "key": "file"})
    fetch(program, tmp_path / "three", monkeypatch, "s3", {**source, "key": "file"}, optional=True)


def test_files_over_http_and_archives(
    program: dict[str, Any], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("U", "u")
    monkeypatch.setenv("P", "p")
    source = {"url": f"http://{address}/plain/closed", "secrets": {"username": "U", "password": "P"}}
    assert fetch(program, tmp_path, monkeypatch, "http", source).read_bytes() == b"content"
    (tmp_path / "inner").write_text("inner")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "inner", "inner")
    KEYS["file"] = (tmp_path / "a.tar.gz").read_bytes()
    source = {"url": f"http://{address}/plain/open"}
    assert fetch(program, tmp_path, monkeypatch, "http", source).read_text() == "inner"
    assert fetch(program, tmp_path, monkeypatch, "http", source, whole=True).read_bytes() == KEYS["file"]
    KEYS["file"] = b"content"


def test_revision_of_a_repository(
    program: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    environment = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                   "GIT_COMMITTER_EMAIL": "a@b"}  # fmt: skip
    subprocess.run(["git", "init", "-q", repository], check=True)
    for text in ("first", "second"):
        (repository / "file").write_text(text)
        subprocess.run(["git", "-C", repository, "add", "."], check=True)
        subprocess.run(["git", "-C", repository, "commit", "-qm", text], check=True, env=environment)
        subprocess.run(["git", "-C", repository, "tag", text], check=True)
    source = {"repo": repository.as_uri(), "revision": "first", "disableSubmodules": True}
    assert (fetch(program, tmp_path, monkeypatch, "git", source) / "file").read_text() == "first"


def test_pod_fetches_before_its_main_container() -> None:
    world = WorkflowWorld("""
metadata: {name: w}
spec:
  entrypoint: m
  templates:
  - name: m
    inputs:
      artifacts:
      - name: a
        path: /in/a
        s3:
          {endpoint: s3.local, bucket: b, key: k, accessKeySecret: {name: s, key: a},
           secretKeySecret: {name: s, key: b}}
    container: {image: x, command: [x]}
""")
    world.settle()
    spec = world.pod("w")["spec"]
    (fetcher,) = spec["initContainers"]
    (want,) = json.loads(next(one["value"] for one in fetcher["env"] if one["name"] == "WINDLASS_FETCH"))
    assert (want["way"], want["from"]["secrets"]) == (
        "s3",
        {"access": "WINDLASS_SECRET_0", "secret": "WINDLASS_SECRET_1"},
    )
    assert fetcher["env"][0]["valueFrom"] == {"secretKeyRef": {"name": "s", "key": "a"}}
    assert {"name": "windlass-inputs", "emptyDir": {}} in spec["volumes"]
    assert {"name": "WINDLASS_IN", "value": "file:a /in/a"} in spec["containers"][0]["env"]


def test_keys_of_a_bucket_are_listed_and_transformed(
    program: dict[str, Any],
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def manifest(expression: str) -> str:
        return f"""
metadata: {{name: w}}
spec:
  entrypoint: m
  templates:
  - name: m
    data:
      source:
        artifactPaths:
          s3:
            {{endpoint: "{address}", insecure: true, bucket: bucket, key: data/, region: eu-1,
             accessKeySecret: {{name: s, key: a}}, secretKeySecret: {{name: s, key: b}}}}
      transformation: [{{expression: "filter(data, {{# endsWith 'two.txt'}})"}}, {{expression: "{expression}"}}]
"""

    def listed(pod: dict[str, Any]) -> tuple[int, str]:
        (container,) = pod["spec"]["containers"]
        variables = {one["name"]: one.get("value", "") for one in container["env"]}
        secrets = [one["name"] for one in container["env"] if "valueFrom" in one]
        for name, value in {**variables, **dict(zip(secrets, (ACCESS, SECRET), strict=True))}.items():
            monkeypatch.setenv(name, value)
        program["list_keys"]()
        return 0, captured(result=capsys.readouterr().out)

    world = WorkflowWorld(manifest("map(data, {# + '.done'})"), listed)
    world.run()
    assert world.status()["phase"] == "Succeeded", world.status()
    assert world.nodes()["w"]["outputs"]["result"] == '["data/sub/two.txt.done"]'
    world = WorkflowWorld(manifest("data + 4"), listed)
    world.run()
    assert world.status()["phase"] == "Error"
    assert world.nodes()["w"]["message"].startswith("data.transformation 'data + 4': ")
