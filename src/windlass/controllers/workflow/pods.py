"""Pods of container and script templates. Pure."""

from __future__ import annotations

import base64
import json
import posixpath
from typing import Any

from windlass.api.resources import Resource
from windlass.controllers.effects import controller_reference
from windlass.controllers.workflow import capture, labels
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.node import pod_name
from windlass.workflow.run import Start

Json = dict[str, Any]
STAGING = "/argo/staging"
"""Directory with the source of a script."""
ARTIFACTS = "/var/run/windlass/artifacts"
_PRIVATE = ("/tmp", "/mnt", "/out", "/output", "/outputs")
"""Directories that are private to the pod if outputs are written there."""
_FROM_SPEC = (
    "nodeSelector", "tolerations", "affinity", "serviceAccountName", "schedulerName", "hostAliases",
    "imagePullSecrets", "securityContext", "dnsPolicy", "dnsConfig", "hostNetwork",
    "automountServiceAccountToken",
)  # fmt: skip


def build_pod(kind: Resource, workflow: Json, spec: Json, start: Start, now: float) -> Json:
    """Return the pod of a leaf. Raises :class:`EvaluationError`."""
    metadata, template, node = workflow["metadata"], start.template, start.node
    own = template.get("metadata") or {}
    shared = spec.get("podMetadata") or {}
    annotations = {
        **(shared.get("annotations") or {}),
        **(own.get("annotations") or {}),
        labels.NODE_ID: node.id,
        labels.NODE_NAME: node.name,
    }
    container = _container(template, start)
    if "script" in template:
        annotations[labels.SCRIPT] = str(template["script"].get("source") or "")
    if capture.wanted(template, start.wants_result):
        annotations[labels.OUTPUTS] = json.dumps(template.get("outputs") or {}, separators=(",", ":"))
    body: Json = {
        "restartPolicy": "Never",
        "containers": [container, *(template.get("sidecars") or ())],
        "volumes": _volumes(spec, template, container, metadata["name"]),
    }
    if template.get("initContainers"):
        body["initContainers"] = template["initContainers"]
    for field in _FROM_SPEC:
        value = template.get(field, spec.get(field))
        if value not in (None, "", [], {}):
            body[field] = value
    if template.get("nodeSelector") and spec.get("nodeSelector"):
        body["nodeSelector"] = {**spec["nodeSelector"], **template["nodeSelector"]}
    priority = template.get("priorityClassName") or spec.get("podPriorityClassName")
    if priority:
        body["priorityClassName"] = priority
    if start.deadline is not None:
        body["activeDeadlineSeconds"] = max(1, int(start.deadline - now))
    if start.avoid_hosts:
        _avoid(body, start.avoid_hosts)
    return {
        "metadata": {
            "name": pod_name(metadata["name"], node),
            "namespace": metadata.get("namespace"),
            "labels": {
                **(shared.get("labels") or {}),
                **(own.get("labels") or {}),
                labels.WORKFLOW: metadata["name"][:63],
            },
            "annotations": annotations,
            "ownerReferences": [controller_reference(kind, workflow)],
        },
        "spec": {name: value for name, value in body.items() if value not in ([], None)},
    }


def _container(template: Json, start: Start) -> Json:
    container = dict(template.get("script") or template.get("container") or {})
    container.pop("source", None)
    container["name"] = labels.MAIN
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    mounts: list[Json] = list(container.get("volumeMounts") or ())
    if "script" in template:
        command = [*(container.get("command") or ["sh"]), f"{STAGING}/script", *(container.get("args") or ())]
        container["command"] = command
        container.pop("args", None)
        mounts.append({"name": "argo-staging", "mountPath": STAGING})
    if capture.wanted(template, start.wants_result):
        _wrap(container, template, command, start)
    private = private_directories(template, mounts)
    mounts += [{"name": f"outputs{path.replace('/', '-')}", "mountPath": path} for path in private]
    if uses_artifacts(template):
        mounts.append({"name": "windlass-artifacts", "mountPath": ARTIFACTS})
    if mounts:
        container["volumeMounts"] = mounts
    return container


def _wrap(container: Json, template: Json, command: list[str], start: Start) -> None:
    """Put the shell that captures outputs around the command."""
    if not container.get("command"):
        raise EvaluationError(
            f"template {template.get('name')!r} has outputs and no command: the command of the image is not known, "
            "write it in container.command"
        )
    container["command"] = ["sh", "-c", capture.SCRIPT, "windlass-capture", *command]
    container.pop("args", None)
    environment: list[Json] = list(container.get("env") or ())
    if start.wants_result:
        environment.append({"name": "WINDLASS_RESULT", "value": "1"})
    if lines := capture.out_lines(template):
        environment.append({"name": "WINDLASS_OUT", "value": "\n".join(lines)})
    if lines := _in_lines(template):
        environment.append({"name": "WINDLASS_IN", "value": "\n".join(lines)})
    container["env"] = environment


def _in_lines(template: Json) -> list[str]:
    """Return the lines that tell the shell which artifacts to place where."""
    lines = []
    for artifact in (template.get("inputs") or {}).get("artifacts") or ():
        if not artifact.get("path"):
            continue
        if raw := artifact.get("raw"):
            data = base64.b64encode(str(raw.get("data", "")).encode()).decode()
            lines.append(f"raw:{data} {artifact['path']}")
        elif stored := artifact.get("store"):
            lines.append(f"{stored['sha256']} {artifact['path']} {artifact.get('subPath', '')}".rstrip())
        else:
            raise EvaluationError(
                f"inputs.artifacts.{artifact.get('name')}: only raw artifacts and those of earlier nodes can be read: "
                "fetch the others in a container"
            )
    return lines


def uses_artifacts(template: Json) -> bool:
    stored = any("store" in artifact for artifact in (template.get("inputs") or {}).get("artifacts") or ())
    return stored or any(line.startswith("artifact ") for line in capture.out_lines(template))


def private_directories(template: Json, mounts: list[Json]) -> list[str]:
    """Return the directories of outputs and inputs to mount, unless the container mounts something there."""
    paths = [line.split(" ", 2)[2] for line in capture.out_lines(template)]
    paths += [
        item["path"] for item in (template.get("inputs") or {}).get("artifacts") or () if item.get("path")
    ]
    mounted = [mount.get("mountPath", "").rstrip("/") for mount in mounts]
    open_paths = [
        f"{posixpath.normpath(path)}/"
        for path in paths
        if not any(f"{path}/".startswith(f"{place}/") for place in mounted if place)
    ]
    return [place for place in _PRIVATE if any(path.startswith(f"{place}/") for path in open_paths)]


def claim_name(workflow: str, name: str) -> str:
    """Return the name of the claim of a ``volumeClaimTemplates`` entry."""
    return f"{workflow}-{name}"


def _volumes(spec: Json, template: Json, container: Json, workflow: str) -> list[Json]:
    names = {mount["name"] for mount in container.get("volumeMounts") or ()}
    for other in (*(template.get("sidecars") or ()), *(template.get("initContainers") or ())):
        names |= {mount.get("name") for mount in other.get("volumeMounts") or ()}
    found = {
        volume.get("name"): volume
        for volume in (*(spec.get("volumes") or ()), *(template.get("volumes") or ()))
    }
    volumes = [volume for name, volume in found.items() if name in names]
    volumes += [
        {"name": name, "persistentVolumeClaim": {"claimName": claim_name(workflow, name)}}
        for claim in spec.get("volumeClaimTemplates") or ()
        if (name := str((claim.get("metadata") or {}).get("name"))) in names
    ]
    if "argo-staging" in names:
        path = f"metadata.annotations['{labels.SCRIPT}']"
        item = {"path": "script", "fieldRef": {"fieldPath": path}}
        volumes.append({"name": "argo-staging", "downwardAPI": {"items": [item]}})
    for mount in container.get("volumeMounts") or ():
        if mount["name"].startswith("outputs-"):
            volumes.append({"name": mount["name"], "emptyDir": {}})
    if "windlass-artifacts" in names:
        volumes.append(
            {"name": "windlass-artifacts", "persistentVolumeClaim": {"claimName": "windlass-artifacts"}}
        )
    return volumes


def _avoid(body: Json, hosts: tuple[str, ...]) -> None:
    """Keep the pod off the nodes on which earlier attempts failed."""
    rule = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": list(hosts)}
    affinity = dict(body.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), rule]} for term in terms
    ]
    body["affinity"] = {
        **affinity,
        "nodeAffinity": {**node, "requiredDuringSchedulingIgnoredDuringExecution": required},
    }
