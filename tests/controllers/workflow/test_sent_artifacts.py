"""Output artifacts in S3 and over HTTP, and archived logs: shell, sidecar and server as real processes."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from workflow_world import WorkflowWorld

from windlass.controllers.workflow import capture
from windlass.controllers.workflow.kinds.fetch_script import SHARED
from windlass.controllers.workflow.kinds.send_script import SCRIPT

ACCESS, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
STORE = "/var/run/windlass/artifacts"


class _Server(BaseHTTPRequestHandler):
    """Part of S3 that takes objects with a right signature, and ``/plain`` with a password."""

    objects: dict[str, bytes]
    signed: Any

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/plain/"):
            right = self.headers.get("Authorization") == "Basic dTpw"
        else:
            now = datetime.datetime.strptime(self.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
            url, digest = f"http://{self.headers['Host']}{self.path}", hashlib.sha256(body).hexdigest()
            expected = self.signed("PUT", url, {}, "eu-1", ACCESS, SECRET, now, digest)["authorization"]
            right = self.headers["Authorization"] == expected
        if right:
            self.objects[self.path] = body
        self.send_response(200 if right else 403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[type[_Server]]:
    program: dict[str, Any] = {}
    exec(compile(SHARED, "shared", "exec"), program)
    handler = type("Handler", (_Server,), {"objects": {}, "signed": staticmethod(program["signed"])})
    found = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    handler.address = f"127.0.0.1:{found.server_port}"  # type: ignore[attr-defined]
    yield handler
    found.shutdown()
    found.server_close()


def manifest(address: str, folder: Path, name: str, archive: str, key: str, command: str) -> str:
    place = f'{{endpoint: "{address}", insecure: true, region: eu-1, bucket: results, key: {key}, '
    place += "accessKeySecret: {name: s, key: a}, secretKeySecret: {name: s, key: b}}"
    return f"""
metadata: {{name: w}}
spec:
  entrypoint: m
  archiveLogs: true
  templates:
  - name: m
    outputs:
      artifacts:
      - {{name: {name}, path: {folder}/made, archive: {archive}, s3: {place}}}
    container: {{image: x, command: [sh, -c, "{command}"]}}
"""


def play(pod: dict[str, Any], folder: Path, secret: str = SECRET) -> tuple[int, str]:
    """Run the main container and the sidecar of a pod, with its folders below another one."""
    sidecar, main = pod["spec"]["initContainers"][-1], pod["spec"]["containers"][0]
    outbox, store = folder / "outbox", folder / "store"
    outbox.mkdir()
    secrets = {"WINDLASS_SECRET_0": ACCESS, "WINDLASS_SECRET_1": secret}

    def environment(container: dict[str, Any]) -> dict[str, str]:
        given = {one["name"]: one["value"] for one in container["env"] if "value" in one}
        return {**os.environ, **secrets, **given}

    assert main["command"][2] == capture.SCRIPT
    script = capture.SCRIPT.replace("/var/run/windlass/outbox", str(outbox)).replace(STORE, str(store))
    sender = subprocess.Popen(
        [sys.executable, *sidecar["command"][1:3], str(outbox)], env=environment(sidecar)
    )
    try:
        ended = subprocess.run(
            ["sh", "-c", script, *main["command"][3:]],
            env=environment(main),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert sender.poll() is None  # it waits for its signal
    finally:
        sender.terminate()
        assert sender.wait(60) == 0
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("form", "archive"), [("tar", "{tar: {}}"), ("zip", "{zip: {}}"), ("none", "{none: {}}")]
)
def test_artifacts_are_sent_and_their_place_is_the_output(
    server: Any, tmp_path: Path, form: str, archive: str
) -> None:
    made = tmp_path / "made"
    command = f"mkdir -p {made}/sub; echo one >{made}/one; echo two >{made}/sub/two"
    command += "; echo said; echo wrong >&2"
    text = manifest(server.address, tmp_path, "out", archive, f"w/{form}", command)
    world = WorkflowWorld(text, lambda pod: play(pod, tmp_path))
    world.run()
    node = world.nodes()["w"]
    assert node["phase"] == "Succeeded", node
    out, logs = node["outputs"]["artifacts"]
    assert (out["s3"]["key"], "store" in out) == (f"w/{form}", False)
    sent = {key: body for key, body in server.objects.items() if key.startswith(f"/results/w/{form}")}
    if form == "none":
        assert sent == {"/results/w/none/one": b"one\n", "/results/w/none/sub/two": b"two\n"}
    elif form == "zip":
        with zipfile.ZipFile(BytesIO(sent["/results/w/zip"])) as packed:
            assert {name: packed.read(name) for name in packed.namelist()} == {
                "one": b"one\n",
                "sub/two": b"two\n",
            }
    else:
        with tarfile.open(fileobj=BytesIO(sent["/results/w/tar"])) as packed:
            assert packed.extractfile("made/sub/two").read() == b"two\n"  # type: ignore[union-attr]
    assert logs["name"] == "main-logs"
    with tarfile.open(tmp_path / "store" / logs["store"]["sha256"]) as packed:
        said = packed.extractfile("main.log").read().decode()  # type: ignore[union-attr]
    assert sorted(said.split()) == ["said", "wrong"]


def test_a_refused_artifact_is_the_error_of_its_node(server: Any, tmp_path: Path) -> None:
    text = manifest(server.address, tmp_path, "out", "{none: {}}", "w/refused", f"echo x >{tmp_path}/made")
    world = WorkflowWorld(text, lambda pod: play(pod, tmp_path, "wrong"))
    world.run()
    node = world.nodes()["w"]
    assert node["phase"] == "Error"
    assert node["message"].startswith(
        "output artifact 'out' cannot be stored at s3://results/w/refused: HTTP Error 403"
    )


@pytest.mark.parametrize("more", [0, 1])
def test_an_artifact_too_large_for_one_upload_is_told_before_the_first_byte(
    tmp_path: Path, more: int
) -> None:
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(SCRIPT, "send", "exec"), program)
    sent: list[str] = []
    program["WAYS"]["s3"] = lambda to, path, below: sent.append(below)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a").write_text("small")
    with open(folder / "weights", "wb") as stream:
        stream.truncate((5 << 30) + more)  # a sparse file
    want = {"form": "none", "way": "s3", "to": {}}
    if not more:
        program["send"](want, str(folder))
        assert sent == ["/a", "/weights"]
        return
    with pytest.raises(ValueError, match=r"weights has 5368709121 bytes, .*: split -b 4G weights FOLDER/"):
        program["send"](want, str(folder))
    assert sent == []


def test_a_file_is_put_to_an_address(server: Any, tmp_path: Path) -> None:
    text = f"""
metadata: {{name: w}}
spec:
  entrypoint: m
  templates:
  - name: m
    outputs:
      artifacts:
      - name: out
        path: {tmp_path}/made
        archive: {{none: {{}}}}
        http:
          url: "http://{server.address}/plain/file"
          auth: {{basicAuth: {{usernameSecret: {{name: s, key: u}}, passwordSecret: {{name: s, key: p}}}}}}
    container: {{image: x, command: [sh, -c, "echo body >{tmp_path}/made"]}}
"""

    def played(pod: dict[str, Any]) -> tuple[int, str]:
        sidecar = pod["spec"]["initContainers"][-1]
        (want,) = json.loads(next(one["value"] for one in sidecar["env"] if one["name"] == "WINDLASS_SEND"))
        for one in sidecar["env"]:
            if one["name"] in want["to"]["secrets"].values():
                key = one.pop("valueFrom")["secretKeyRef"]["key"]
                one["value"] = key
        return play(pod, tmp_path)

    world = WorkflowWorld(text, played)
    world.run()
    assert world.nodes()["w"]["phase"] == "Succeeded", world.nodes()["w"]
    assert server.objects["/plain/file"] == b"body\n"
