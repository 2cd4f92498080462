"""Operator of the kind ``Training``, as a user writes it with kopf: one pod for each worker."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import kopf

GROUP = ("conformance.example.com", "v1", "trainings")
LABEL = "conformance.example.com/training"


def kubectl(*arguments: str, manifest: Any = None) -> str:
    text = json.dumps(manifest) if manifest is not None else None
    done = subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, check=True)
    return done.stdout


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.persistence.finalizer = "conformance.example.com/operator"


@kopf.on.create(*GROUP)
def start(spec: Any, name: str, namespace: str, patch: Any, **_: Any) -> dict[str, int]:
    for index in range(spec["workers"]):
        container = {"name": "main", "image": "python", "command": list(spec["command"])}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{index}", "labels": {LABEL: name}},
            "spec": {"containers": [container], "restartPolicy": "Never"},
        }
        kopf.adopt(pod)
        kubectl("create", "-n", namespace, "-f", "-", manifest=pod)
    patch.status["phase"] = "Running"
    return {"created": spec["workers"]}


@kopf.on.event("", "v1", "pods", labels={LABEL: kopf.PRESENT})
def follow(labels: Any, namespace: str, status: Any, **_: Any) -> None:
    if status.get("phase") != "Succeeded":
        return
    name = labels[LABEL]
    found = json.loads(kubectl("get", "pods", "-n", namespace, "-l", f"{LABEL}={name}", "-o", "json"))
    if all(pod["status"].get("phase") == "Succeeded" for pod in found["items"]):
        change = {"status": {"phase": "Succeeded"}}
        arguments = ("patch", "training", name, "-n", namespace, "--subresource=status", "--type=merge", "-p")
        kubectl(*arguments, json.dumps(change))


@kopf.on.delete(*GROUP)
def gone(name: str, logger: Any, **_: Any) -> None:
    logger.info("cleaned up %s", name)
