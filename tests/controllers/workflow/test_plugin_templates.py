"""``plugin`` templates: the sidecar of an executor plugin and the script that asks it, as real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from workflow_world import WorkflowWorld

from windlass.api.resources import CONFIG_MAPS
from windlass.controllers.workflow import capture, labels
from windlass.controllers.workflow.observe import decode_workflow_pod, report_of

PLUGIN = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Plugin(BaseHTTPRequestHandler):
    calls = 0
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Plugin.calls += 1
        name = asked["template"]["plugin"]["greet"].get("name")
        code, reply = 200, {"node": {"phase": "Running"}, "requeue": "10ms"}
        if Plugin.calls == 1:
            code = 503
        elif name == "bob":
            reply = {"node": {"phase": "Failed", "message": "there is no such name"}}
        elif Plugin.calls > 2:
            place = asked["workflow"]["metadata"]["namespace"]
            found = {"parameters": [{"name": "text", "value": f"hello {name} in {place}"}], "result": "greeted"}
            reply = {"node": {"phase": "Succeeded", "outputs": found}}
        self.send_response(code if self.path == "/api/v1/template.execute" else 404)
        self.end_headers()
        self.wfile.write(json.dumps(reply).encode())
    def log_message(self, *_):
        pass
server = HTTPServer(("127.0.0.1", 0), Plugin)
open(sys.argv[1], "w").write(str(server.server_port))
server.serve_forever()
"""
OWNER = {"kind": "Workflow", "name": "w", "uid": "u", "controller": True}
MANIFEST = """
metadata: {{name: w}}
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {{name: greet, template: greet}}
    - - name: after
        template: after
        arguments:
          parameters:
          - name: p
            value: "{{{{steps.greet.outputs.parameters.text}}}} {{{{steps.greet.outputs.result}}}}"
  - name: greet
    outputs: {{parameters: [{{name: text}}]}}
    plugin: {{greet: {{name: {name}}}}}
  - name: after
    inputs: {{parameters: [{{name: p}}]}}
    container: {{image: x, command: [echo, "{{{{inputs.parameters.p}}}}"]}}
"""


def install(world: WorkflowWorld) -> None:
    container = {
        "name": "greeter",
        "command": [sys.executable, "-c"],
        "args": [PLUGIN],
        "ports": [{"containerPort": 4355}],
    }
    data = {"sidecar.container": yaml.safe_dump(container)}
    metadata = {"name": "greet-executor-plugin", "namespace": "default"}
    world.api.put(CONFIG_MAPS, {"metadata": metadata, "data": data})


def player(folder: Path) -> Any:
    """Return a function that runs main container and sidecar of a pod. The sidecar takes a free port."""

    def play(pod: dict[str, Any]) -> tuple[int, str]:
        (main,) = pod["spec"]["containers"]
        if "initContainers" not in pod["spec"]:
            return 0, ""
        (sidecar,) = pod["spec"]["initContainers"]
        file = folder / "port"
        file.unlink(missing_ok=True)
        server = subprocess.Popen([*sidecar["command"], *sidecar["args"], str(file)])
        try:
            deadline = time.monotonic() + 60
            while not file.exists() or not file.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            (folder / "log").touch()
            script = folder / "script"
            text = pod["metadata"]["annotations"]["workflows.windlass.dev/script"]
            script.write_text(text.replace("/dev/termination-log", str(folder / "log")))
            values = {one["name"]: one["value"] for one in main["env"]}
            for before, after in (
                ("localhost:4355", f"127.0.0.1:{file.read_text()}"),
                ("/tmp/windlass-plugin", str(folder / "out")),
            ):
                values = {name: value.replace(before, after) for name, value in values.items()}
            command = [sys.executable, str(script)]
            ended = subprocess.run(
                ["sh", "-c", capture.SCRIPT, "windlass-capture", *command],
                env={**os.environ, **values},
                capture_output=True,
                text=True,
                timeout=120,
            )
            return ended.returncode, ended.stdout + ended.stderr
        finally:
            server.kill()
            server.wait()

    return play


def test_a_plugin_runs_the_template_and_its_outputs_are_those_of_the_node(tmp_path: Path) -> None:
    world = WorkflowWorld(MANIFEST.format(name="ada"), player(tmp_path))
    install(world)
    world.run()
    assert world.status()["phase"] == "Succeeded", world.nodes()
    (after,) = [node for name, node in world.nodes().items() if "after" in name and node["type"] == "Pod"]
    assert after["inputs"]["parameters"][0]["value"] == "hello ada in default greeted"


def test_failures_of_a_plugin_are_told(tmp_path: Path) -> None:
    world = WorkflowWorld(MANIFEST.format(name="bob"), player(tmp_path))
    install(world)
    world.run()
    assert world.status()["phase"] == "Failed"
    assert (tmp_path / "log").read_text() == "there is no such name"
    missing = WorkflowWorld(MANIFEST.format(name="ada"))
    missing.run()
    assert missing.status()["phase"] == "Failed"
    assert "plugin 'greet' is not installed: apply its ConfigMap greet-executor-plugin" in str(
        missing.nodes()
    )


def test_the_failure_of_the_main_container_is_told_before_the_end_of_its_sidecars() -> None:
    def ended(name: str, code: int, message: str = "") -> dict[str, Any]:
        state = {"exitCode": code, "reason": "Error", "message": message}
        return {"name": name, "state": {"terminated": state}}

    status = {
        "phase": "Failed",
        "initContainerStatuses": [ended("greeter", 143)],
        "containerStatuses": [ended("main", 1, "there is no such name")],
    }
    metadata = {"name": "p", "annotations": {labels.NODE_ID: "p"}, "ownerReferences": [OWNER]}
    pod = decode_workflow_pod(json.dumps({"metadata": metadata, "status": status}).encode())
    assert pod is not None
    assert report_of(pod).message == "main: Error (exit code 1): there is no such name"
