"""F20: a device plugin of two devices on a running control plane."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from device_plugin import RESOURCE
from device_plugin import __file__ as PLUGIN
from single_node import Box


def widget_pod(name: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "x",
        "command": ["sh", "-c", "echo has $WIDGETS; sleep 600"],
        "resources": {"limits": {RESOURCE: "1"}},
    }
    spec = {"schedulerName": "windlass", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_f20_device_plugin_registers_serves_and_reports_health() -> None:
    with Box("--gpus", "none") as box:
        folder = box.state.node / "device-plugins"
        box.wait_for("the socket is there", (folder / "kubelet.sock").exists)

        def allocatable() -> str:
            (node,) = box.items("nodes")
            return node["status"]["allocatable"].get(RESOURCE, "")

        with subprocess.Popen(
            [sys.executable, PLUGIN, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=box.environment,
        ) as plugin:
            assert plugin.stdin is not None
            try:
                box.wait_for("both are allocatable", lambda: allocatable() == "2")
                box.windlass("apply", "-f", "-", stdin=json.dumps(widget_pod("one")))
                said = box.wait_for("it runs", lambda: box.windlass("logs", "one", check=False).stdout)
                assert said == "has widget-a\n"
                assert f"{RESOURCE} widget-a" in box.windlass("show", "one").stdout
                plugin.stdin.write("widget-b Unhealthy\n")
                plugin.stdin.flush()
                box.wait_for("one is allocatable", lambda: allocatable() == "1")
            finally:
                plugin.kill()
        box.wait_for("none is allocatable", lambda: allocatable() == "0")
