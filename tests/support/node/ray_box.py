"""Programs and manifests for Ray on a box. The pods become ready quickly."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from single_node import Box

Json = dict[str, Any]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windlass" / "ray" / "bin"
SECONDS = 300.0
"""Limit of each wait in seconds. Ray starts a dozen processes for each node."""
SERVE = """
from ray import serve

@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Fruit:
    def reconfigure(self, config):
        self.price = config["price"]

    async def __call__(self, request):
        return f"mango {self.price}"

app = Fruit.bind()
"""
"""Program of an application (``fruit.py`` in the folder of the box) that answers with its price."""
_PROBE = {
    "exec": {
        "command": [
            "bash",
            "-c",
            "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success",
        ]
    },
    "periodSeconds": 1,
    "timeoutSeconds": 5,
    "failureThreshold": 30,
}


def ray_folder(*modules: str) -> str:
    """Return the folder with Ray's programs. Skip the test where Ray or a module of it is not installed."""
    found = shutil.which("ray", path=f"{CACHE}:{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip("no Ray here: tools/test_tools.sh ray")
    folder = Path(found).parent
    if modules:
        wanted = [str(folder / "python"), "-c", f"import {', '.join(modules)}"]
        if subprocess.run(wanted, check=False, capture_output=True).returncode:
            pytest.skip("Ray has no extra serve here: tools/test_tools.sh ray")
    return str(folder)


class RayBox:
    """A box with Ray on the PATH of its pods."""

    def __init__(self, box: Box, folder: str) -> None:
        self.box, self.path = box, f"{folder}:/usr/bin:/bin"

    def group(self, cpus: int = 1, limits: Json | None = None, **start: str) -> Json:
        """Return a group of pods in which Ray sees ``cpus``."""
        container = {
            "name": "ray",
            "image": "rayproject/ray",
            "env": [{"name": "PATH", "value": self.path}],
            "readinessProbe": _PROBE,
            "resources": {"requests": {"cpu": "50m"}, **({"limits": limits} if limits else {})},
        }
        return {
            "rayStartParams": {"num-cpus": str(cpus), "include-log-monitor": "false", **start},
            "template": {"spec": {"containers": [container]}},
        }

    def cluster(self, workers: int, head_cpus: int = 1, limits: Json | None = None, **more: Any) -> Json:
        """Return the spec of a cluster. Without workers the head takes all tasks."""
        small = {"groupName": "small", "replicas": workers, "minReplicas": 0, "maxReplicas": 2}
        own = "'{\"small\": 1}'"
        groups = [{**small, **self.group(limits=limits, resources=own)}]
        return {
            "headGroupSpec": self.group(head_cpus, limits),
            "workerGroupSpecs": groups if workers or more.get("enableInTreeAutoscaling") else [],
            **more,
        }

    def apply(self, kind: str, name: str, spec: Json, **metadata: Any) -> None:
        manifest = {
            "apiVersion": "ray.io/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": spec,
        }
        self.box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(manifest))

    def apply_service(self, name: str, price: int, **cluster: Any) -> None:
        """Apply a RayService with the application of :data:`SERVE`."""
        config = f"""
applications:
- name: fruit
  import_path: fruit:app
  route_prefix: /fruit
  runtime_env: {{env_vars: {{PYTHONPATH: {self.box.folder}}}}}
  deployments: [{{name: Fruit, user_config: {{price: {price}}}}}]
"""
        spec = {"serveConfigV2": config, "rayClusterConfig": {**self.cluster(0), **cluster}}
        self.apply("RayService", name, {**spec, "rayClusterDeletionDelaySeconds": 2})

    def ask(self, name: str) -> str:
        """Return the answer of the application of a RayService to a pod; empty if there is none."""
        command = ("run", "--", "curl", "-s", "-m", "20", f"http://{name}-serve-svc:8000/fruit")
        return self.box.windlass(*command, check=False).stdout

    def status(self, kind: str, name: str) -> Json:
        return self.box.get(kind, name).get("status") or {}

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        return self.box.wait_for(what, condition, SECONDS)

    def ended(self, name: str) -> Json:
        """Wait for the end of a RayJob, and return its status."""

        def look() -> Json | None:
            status = self.status("rayjobs", name)
            return status if status.get("jobDeploymentStatus") in ("Complete", "Failed") else None

        return self.wait(f"RayJob {name} has ended", look)

    def pods(self, cluster: str, role: str = "") -> list[Json]:
        """Return the pods of a cluster that are not being deleted."""
        labels = f"ray.io/cluster={cluster}" + (f",ray.io/node-type={role}" if role else "")
        return [
            pod
            for pod in self.box.items("pods", labels=labels)
            if not pod["metadata"].get("deletionTimestamp")
        ]

    def uids(self, cluster: str, role: str = "") -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods(cluster, role)}
