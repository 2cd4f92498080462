"""Pods of container and script templates. Pure."""

from __future__ import annotations

import base64
import json
import posixpath
from dataclasses import replace
from typing import Any

from windlass.api.resources import Resource
from windlass.controllers.effects import controller_reference
from windlass.controllers.workflow import capture, checkpoints, labels
from windlass.controllers.workflow.kinds import archived_logs, container_set, sending
from windlass.controllers.workflow.kinds.artifacts import FOLDER, VOLUME, fetched, fetcher, way_of
from windlass.controllers.workflow.kinds.lowering import lowered
from windlass.controllers.workflow.kinds.patch import patched
from windlass.controllers.workflow.kinds.plugin import Config, with_plugin
from windlass.workflow.checks.artifacts import FETCHED
from windlass.workflow.images import command_of
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.node import pod_name
from windlass.workflow.run import Start

Json = dict[str, Any]
STAGING = "/argo/staging"
"""Directory with the source of a script."""
ARTIFACTS = "/var/run/windlass/artifacts"
ARTIFACT_CLAIM = "windlass-artifacts"
"""Claim of the namespace with the store of artifacts, and its volume in a pod."""
_PRIVATE = ("/tmp", "/mnt", "/out", "/output", "/outputs")
"""Directories that are private to the pod if outputs are written there."""
_FROM_SPEC = (
    "nodeSelector", "tolerations", "affinity", "serviceAccountName", "schedulerName", "hostAliases",
    "imagePullSecrets", "securityContext", "dnsPolicy", "dnsConfig", "hostNetwork",
    "automountServiceAccountToken",
)  # fmt: skip


def build_pod(
    kind: Resource, workflow: Json, spec: Json, start: Start, now: float, config: Config = lambda *_: None
) -> Json:
    """Return the pod of a leaf. ``config``: texts of ConfigMaps. Raises :class:`EvaluationError`."""
    template = archived_logs.with_logs(spec, lowered(with_plugin(start.template, workflow, config)))
    judged = not {"successCondition", "transformation"}.isdisjoint(template.get("outputs") or {})
    start = replace(start, template=template, wants_result=start.wants_result or judged)
    metadata, node = workflow["metadata"], start.node
    own = template.get("metadata") or {}
    shared = spec.get("podMetadata") or {}
    containers = [_container(template, start)]
    if checkpoints.resumes(template):
        checkpoints.add_checkpoint(containers[0], workflow, node)
    if "containerSet" in template:
        containers = container_set.in_order(template, [*containers, *container_set.others_of(template)])
    body: Json = {
        "restartPolicy": "Never",
        "containers": containers,
        "volumes": _volumes(spec, template, containers, metadata["name"]),
        "initContainers": [
            *((one,) if (one := fetcher(template)) is not None else ()),
            *(_mirrored(one, containers[0]) for one in template.get("initContainers") or ()),
            *(
                {**_mirrored(one, containers[0]), "restartPolicy": "Always"}
                for one in template.get("sidecars") or ()
            ),
            *((one,) if (one := sending.sender(template)) is not None else ()),
        ],
    }
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
            "annotations": _annotations(spec, start),
            "ownerReferences": [controller_reference(kind, workflow)],
        },
        "spec": patched(
            {name: value for name, value in body.items() if value not in ([], None)},
            spec.get("podSpecPatch"),
            template.get("podSpecPatch"),
        ),
    }


def _annotations(spec: Json, start: Start) -> dict[str, str]:
    template, node = start.template, start.node
    annotations = {
        **((spec.get("podMetadata") or {}).get("annotations") or {}),
        **((template.get("metadata") or {}).get("annotations") or {}),
        labels.NODE_ID: node.id,
        labels.NODE_NAME: node.name,
    }
    if "script" in template:
        annotations[labels.SCRIPT] = str(template["script"].get("source") or "")
    if capture.wanted(template, start.wants_result):
        annotations[labels.OUTPUTS] = json.dumps(template.get("outputs") or {}, separators=(",", ":"))
    if template.get("daemon"):
        annotations[labels.DAEMON] = "true"
    return annotations


def _mirrored(container: Json, main: Json) -> Json:
    """Return an init container or a sidecar. With ``mirrorVolumeMounts`` it has the mounts of the main one."""
    body = {key: value for key, value in container.items() if key != "mirrorVolumeMounts"}
    if container.get("mirrorVolumeMounts"):
        body["volumeMounts"] = [*(body.get("volumeMounts") or ()), *(main.get("volumeMounts") or ())]
    return body


def _container(template: Json, start: Start) -> Json:
    container: Json
    if "containerSet" in template:
        container = container_set.main_of(template)
    else:
        main = template.get("script") or template.get("container") or {}
        container = {**main, "name": labels.MAIN}
    container.pop("source", None)
    if "script" not in template and (known := command_of(container)):
        container["command"] = known
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
    if fetched(template):
        mounts.append({"name": VOLUME, "mountPath": FOLDER})
    if sending.sent(template):
        mounts.append({"name": sending.VOLUME, "mountPath": sending.FOLDER})
    if _stores_artifacts(template):
        mounts.append({"name": ARTIFACT_CLAIM, "mountPath": ARTIFACTS})
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
    if "containerSet" in template and (others := container_set.ended_before_outputs(template)):
        environment.append({"name": "WINDLASS_SET", "value": " ".join(others)})
    if start.wants_result:
        environment.append({"name": "WINDLASS_RESULT", "value": "1"})
    if archived_logs.archives(template):
        environment.append({"name": "WINDLASS_LOG", "value": "1"})
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
        elif way_of(artifact):
            lines.append(f"file:{artifact['name']} {artifact['path']} {artifact.get('subPath', '')}".rstrip())
        elif parts := (artifact.get("store") or {}).get("parts"):
            lines += [f"{part['sha256']} {artifact['path']}/{part['name']}" for part in parts]
        elif stored := artifact.get("store"):
            lines.append(f"{stored['sha256']} {artifact['path']} {artifact.get('subPath', '')}".rstrip())
        else:
            raise EvaluationError(
                f"inputs.artifacts.{artifact.get('name')}: artifacts are raw, those of earlier nodes, or fetched from "
                f"{', '.join(FETCHED)}: fetch the others in a container"
            )
    return lines


def uses_artifacts(spec: Json, template: Json) -> bool:
    """Return whether the pod of a template needs the store of artifacts."""
    return checkpoints.resumes(template) or _stores_artifacts(archived_logs.with_logs(spec, template))


def _stores_artifacts(template: Json) -> bool:
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


def _volumes(spec: Json, template: Json, containers: list[Json], workflow: str) -> list[Json]:
    names = {mount["name"] for one in containers for mount in one.get("volumeMounts") or ()}
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
        volumes.append({"name": "argo-staging", "downwardAPI": {"items": [item], "defaultMode": 0o755}})
    volumes += [
        {"name": name, "emptyDir": {}}
        for name in sorted(names)
        if name.startswith("outputs-") or name in (container_set.VOLUME, VOLUME, sending.VOLUME)
    ]
    if ARTIFACT_CLAIM in names:
        volumes.append({"name": ARTIFACT_CLAIM, "persistentVolumeClaim": {"claimName": ARTIFACT_CLAIM}})
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
