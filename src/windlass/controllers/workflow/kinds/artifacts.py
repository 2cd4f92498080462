"""Input artifacts from HTTP, S3 and git: an init container fetches them before the main one begins."""

from __future__ import annotations

import json
from typing import Any

from windlass.controllers.workflow.kinds.fetch_script import SCRIPT
from windlass.controllers.workflow.kinds.http import python_image
from windlass.workflow.checks.artifacts import FETCHED
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.functions import to_json
from windlass.workflow.language.scope import Scope

Json = dict[str, Any]
FOLDER = "/var/run/windlass/inputs"
VOLUME = "windlass-inputs"
_SECRETS = {
    "http": {
        "username": ("auth", "basicAuth", "usernameSecret"),
        "password": ("auth", "basicAuth", "passwordSecret"),
    },
    "s3": {"access": ("accessKeySecret",), "secret": ("secretKeySecret",)},
    "git": {"username": ("usernameSecret",), "password": ("passwordSecret",)},
}
"""Way → name of a secret → its place in the artifact."""


def way_of(artifact: Json) -> str:
    """Return how an artifact is fetched; empty if it is not."""
    if artifact.get("store") or artifact.get("raw"):
        return ""
    return next((way for way in FETCHED if artifact.get(way)), "")


def fetched(template: Json) -> list[Json]:
    """Return the input artifacts of a template that are fetched."""
    artifacts = (template.get("inputs") or {}).get("artifacts") or ()
    return [one for one in artifacts if one.get("path") and way_of(one)]


def fetcher(template: Json) -> Json | None:
    """Return the init container that fetches the artifacts of a template."""
    artifacts = fetched(template)
    if not artifacts:
        return None
    return {
        "name": "windlass-fetch",
        "image": python_image(),
        "command": ["python3", "-c", SCRIPT, FOLDER],
        "env": _environment(artifacts),
        "volumeMounts": [{"name": VOLUME, "mountPath": FOLDER}],
    }


def _environment(artifacts: list[Json]) -> list[Json]:
    """Return the variables that tell the program what to fetch, and its secrets."""
    wanted: list[Json] = []
    environment: list[Json] = []
    for artifact in artifacts:
        way = way_of(artifact)
        wanted.append(
            {
                "name": artifact["name"],
                "way": way,
                "from": with_secrets(artifact, way, environment),
                "whole": "none" in (artifact.get("archive") or {}),
                "mode": artifact.get("mode"),
                "optional": bool(artifact.get("optional")),
            }
        )
    return [*environment, {"name": "WINDLASS_FETCH", "value": json.dumps(wanted, separators=(",", ":"))}]


def with_secrets(artifact: Json, way: str, environment: list[Json]) -> Json:
    """Return the place of an artifact with the variables of its secrets, which are appended to an environment."""
    secrets: dict[str, str] = {}
    for name, places in _SECRETS[way].items():
        reference: Any = artifact[way]
        for place in places:
            reference = (reference or {}).get(place)
        if reference:
            secrets[name] = f"WINDLASS_SECRET_{len(environment)}"
            environment.append({"name": secrets[name], "valueFrom": {"secretKeyRef": reference}})
    return {**artifact[way], "secrets": secrets}


def data_script(template: Json) -> Json:
    """Return a ``data`` template as a script. Its result are the keys of a bucket, before they are transformed."""
    data = template["data"]
    source = {"name": "data", **data["source"]["artifactPaths"]}
    script = {
        "image": python_image(),
        "command": ["python3"],
        "source": SCRIPT,
        "env": _environment([source]),
    }
    outputs = dict(template.get("outputs") or {})
    outputs["transformation"] = [step["expression"] for step in data.get("transformation") or ()]
    body = {key: value for key, value in template.items() if key != "data"}
    return {**body, "script": script, "outputs": outputs}


def transformed(declared: Json, outputs: Json) -> tuple[Json, str]:
    """Return the outputs of a ``data`` template after its expressions, and what is wrong with them."""
    if "transformation" not in declared or "result" not in outputs:
        return outputs, ""
    expression = ""
    try:
        found: Any = json.loads(outputs["result"])
        for expression in declared["transformation"]:
            found = Scope({"data": found}).evaluate(expression)
    except (EvaluationError, ValueError) as problem:
        return outputs, f"data.transformation '{expression}': {problem}"
    return {**outputs, "result": to_json(found)}, ""
