"""Output artifacts that are sent to S3 or over HTTP: a sidecar sends them once the main command has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windlass.controllers.workflow.kinds.artifacts import with_secrets
from windlass.controllers.workflow.kinds.http import python_image
from windlass.controllers.workflow.kinds.send_script import SCRIPT
from windlass.workflow.checks.artifacts import sent_to

Json = dict[str, Any]
FOLDER = "/var/run/windlass/outbox"
VOLUME = "windlass-outbox"


def sent(template: Mapping[str, Any]) -> list[Json]:
    """Return the output artifacts of a template that are sent."""
    artifacts = (template.get("outputs") or {}).get("artifacts") or ()
    return [one for one in artifacts if one.get("path") and sent_to(one)]


def form_of(artifact: Mapping[str, Any]) -> str:
    """Return the form in which an artifact is sent: ``tar`` with gzip, ``zip``, or ``none``, file by file."""
    archive = artifact.get("archive") or {}
    return next((form for form in ("none", "zip") if form in archive), "tar")


def sender(template: Mapping[str, Any]) -> Json | None:
    """Return the sidecar that sends the artifacts of a template."""
    artifacts = sent(template)
    if not artifacts:
        return None
    environment: list[Json] = []
    wanted = [
        {
            "name": one["name"],
            "way": sent_to(one),
            "form": form_of(one),
            "to": with_secrets(one, sent_to(one), environment),
        }
        for one in artifacts
    ]
    text = json.dumps(wanted, separators=(",", ":"))
    return {
        "name": "windlass-send",
        "image": python_image(),
        "command": ["python3", "-c", SCRIPT, FOLDER],
        "env": [*environment, {"name": "WINDLASS_SEND", "value": text}],
        "restartPolicy": "Always",
        "volumeMounts": [{"name": VOLUME, "mountPath": FOLDER}],
    }
