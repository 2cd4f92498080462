"""Defaults of pods and pod templates, as kube-apiserver's ``SetDefaults_*`` write them."""

from __future__ import annotations

from typing import Any

_FILE_MODE = 0o644


def pod(obj: dict[str, Any]) -> None:
    """A Pod: its spec, and the requests that follow from limits."""
    spec = obj.setdefault("spec", {})
    requests_from_limits(spec)
    spec.setdefault("enableServiceLinks", True)
    pod_spec(spec)


def template(obj: dict[str, Any]) -> None:
    """A pod template: what a Pod gets, but requests (they are filled when the Pod is made)."""
    obj.setdefault("metadata", {})
    spec = obj.setdefault("spec", {})
    if isinstance(spec, dict):
        pod_spec(spec)


def requests_from_limits(spec: dict[str, Any]) -> None:
    """A limit without a request is the request too."""
    for container in all_containers(spec):
        _copy_limits(container.get("resources"))
    _copy_limits(spec.get("resources"))


def _copy_limits(amounts: dict[str, Any] | None) -> None:
    limits = (amounts or {}).get("limits")
    if limits:
        requests = amounts.setdefault("requests", {})  # type: ignore[union-attr]
        for name, quantity in limits.items():
            requests.setdefault(name, quantity)


def all_containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Containers and init containers."""
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def pod_spec(spec: dict[str, Any]) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    host_network = bool(spec.get("hostNetwork"))
    for one in all_containers(spec):
        container(one, host_network=host_network)
    for one in spec.get("volumes") or ():
        volume(one)


def ephemeral_containers(obj: dict[str, Any]) -> None:
    """Containers that are added to a running pod."""
    spec = obj.get("spec") or {}
    for one in spec.get("ephemeralContainers") or ():
        container(one, host_network=bool(spec.get("hostNetwork")))


def container(obj: dict[str, Any], *, host_network: bool = False) -> None:
    obj.setdefault("resources", {})
    obj.setdefault("terminationMessagePath", "/dev/termination-log")
    obj.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in obj:
        obj["imagePullPolicy"] = "Always" if _is_latest(obj.get("image", "")) else "IfNotPresent"
    for port in obj.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and port.get("containerPort"):
            port.setdefault("hostPort", port["containerPort"])
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in obj:
            probe(obj[name])
    for hook in (obj.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _http_get(hook.get("httpGet"))
    for variable in obj.get("env") or ():
        _field_ref((variable.get("valueFrom") or {}).get("fieldRef"))


def _is_latest(image: str) -> bool:
    """No tag and no digest, or the tag ``latest``."""
    if "@" in image:
        return False
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    return tag in ("", "latest")


def probe(obj: dict[str, Any]) -> None:
    obj.setdefault("timeoutSeconds", 1)
    obj.setdefault("periodSeconds", 10)
    obj.setdefault("successThreshold", 1)
    obj.setdefault("failureThreshold", 3)
    _http_get(obj.get("httpGet"))
    if "grpc" in obj:
        obj["grpc"].setdefault("service", "")


def _http_get(action: dict[str, Any] | None) -> None:
    if action is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")


def _field_ref(reference: dict[str, Any] | None) -> None:
    if reference is not None:
        reference.setdefault("apiVersion", "v1")


def volume(obj: dict[str, Any]) -> None:
    if len(obj) == 1 and "name" in obj:
        obj["emptyDir"] = {}
        return
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if source in obj:
            obj[source].setdefault("defaultMode", _FILE_MODE)
    _downward(obj.get("downwardAPI"))
    for source in (obj.get("projected") or {}).get("sources") or ():
        _downward(source.get("downwardAPI"))
        token = source.get("serviceAccountToken")
        if token is not None:
            token.setdefault("expirationSeconds", 3600)
    if "hostPath" in obj:
        obj["hostPath"].setdefault("type", "")
    claim = (obj.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    _remote_volume(obj)


def _remote_volume(obj: dict[str, Any]) -> None:
    for source, defaults in (
        ("iscsi", {"iscsiInterface": "default"}),
        ("rbd", {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}),
        ("azureDisk", {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False}),
        ("scaleIO", {"storageMode": "ThinProvisioned", "fsType": "xfs"}),
    ):
        if source in obj:
            for name, value in defaults.items():
                obj[source].setdefault(name, value)


def _downward(source: dict[str, Any] | None) -> None:
    for item in (source or {}).get("items") or ():
        _field_ref(item.get("fieldRef"))
