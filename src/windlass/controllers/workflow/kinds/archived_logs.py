"""Log of the main container as the output artifact ``main-logs`` (``archiveLogs``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.workflow.checks.artifacts import sent_to
from windlass.workflow.images import command_of

Json = dict[str, Any]
NAME = "main-logs"
"""Name of the artifact, as in Argo."""
PATH = "@log"
"""Path that means the log to the shell around the command."""


def with_logs(spec: Mapping[str, Any], template: Json) -> Json:
    """Return a template that also outputs its log, if that is archived.

    A command that is that of an image which is not known here cannot be followed: its log
    stays with the pod.
    """
    location = template.get("archiveLocation") or {}
    wanted = location.get("archiveLogs", spec.get("archiveLogs"))
    container = template.get("container") or {}
    followed = "script" in template or container.get("command") or command_of(container)
    if not wanted or not followed:
        return template
    artifact: Json = {"name": NAME, "path": PATH, "optional": True, "archive": {"none": {}}}
    place = sent_to(location)
    if place == "s3":
        artifact["s3"] = {**location["s3"], "key": f"{location['s3']['key'].rstrip('/')}/main.log"}
    outputs = template.get("outputs") or {}
    return {**template, "outputs": {**outputs, "artifacts": [*(outputs.get("artifacts") or ()), artifact]}}


def archives(template: Mapping[str, Any]) -> bool:
    """Return whether a template outputs its log."""
    artifacts = (template.get("outputs") or {}).get("artifacts") or ()
    return any(artifact.get("path") == PATH for artifact in artifacts)
