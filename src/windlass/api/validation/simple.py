"""Small kinds: configuration, secrets, leases, events, storage."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.validation import amounts, names
from windlass.api.validation.collector import Collector
from windlass.api.validation.metadata import IMMUTABLE
from windlass.api.validation.pods.placement import label_selector

_SIZE_LIMIT = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_ACCESS = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_MODES = ("Block", "Filesystem")
_RECLAIM = ("Delete", "Recycle", "Retain")
_SECRET_KEYS: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
Obj = Mapping[str, Any]


def config_map(obj: Obj, old: Obj | None, out: Collector) -> None:
    plain, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for key, text in plain.items():
        out.each(f"data[{key}]", key, names.config_key(key))
        if key in binary:
            out.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        size += len(text.encode())
    for key, text in binary.items():
        out.each(f"binaryData[{key}]", key, names.config_key(key))
        size += _decoded_size(text)
    if size > _SIZE_LIMIT:
        _too_long("", out)
    _frozen(obj, old, ("data", "binaryData"), out)


def secret(obj: Obj, old: Obj | None, out: Collector) -> None:
    data = obj.get("data") or {}
    size = 0
    for key, text in data.items():
        out.each(f"data[{key}]", key, names.config_key(key))
        size += _decoded_size(text)
    if size > _SIZE_LIMIT:
        _too_long("data", out)
    kind = obj.get("type", "Opaque")
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            out.required(f"data[{key}]")
    if kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        out.required("data[username]")
        out.required("data[password]")
    if old is not None and kind != old.get("type", "Opaque"):
        out.invalid("type", kind, IMMUTABLE)
    _frozen(obj, old, ("data",), out)


def _decoded_size(text: str) -> int:
    return len(base64.b64decode(text))


def _too_long(path: str, out: Collector) -> None:
    out.add(FieldError(path, f"Too long: may not be more than {_SIZE_LIMIT} bytes", "FieldValueTooLong"))


def _frozen(obj: Obj, old: Obj | None, parts: tuple[str, ...], out: Collector) -> None:
    if old is None or not old.get("immutable"):
        return
    if not obj.get("immutable"):
        out.forbidden("immutable", _FROZEN)
    for part in parts:
        if (obj.get(part) or {}) != (old.get(part) or {}):
            out.forbidden(part, _FROZEN)


def lease(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = obj.get("spec") or {}
    for field, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(field)
        if value is not None and value < least:
            words = "must be greater than 0" if least else names.NEGATIVE_WORDS
            out.invalid(f"spec.{field}", value, words)


def event(obj: Obj, old: Obj | None, out: Collector) -> None:
    namespace = (obj.get("metadata") or {}).get("namespace", "")
    about = (obj.get("involvedObject") or {}).get("namespace", "")
    cluster_wide = not about and namespace in ("", "default", "kube-system")
    if about != namespace and not cluster_wide:
        out.invalid("involvedObject.namespace", about, "does not match event.namespace")


def persistent_volume(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = obj.get("spec") or {}
    _access(spec.get("accessModes") or (), out)
    capacity = spec.get("capacity") or {}
    if not capacity:
        out.required("spec.capacity")
    elif set(capacity) != {"storage"}:
        out.choice("spec.capacity", ",".join(sorted(capacity)), ("storage",))
    for name, text in capacity.items():
        _positive(f"spec.capacity[{name}]", text, out)
    out.choice(
        "spec.persistentVolumeReclaimPolicy", spec.get("persistentVolumeReclaimPolicy", "Retain"), _RECLAIM
    )
    out.choice("spec.volumeMode", spec.get("volumeMode", "Filesystem"), _MODES)
    sources = spec.keys() - {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeMode",
        "volumeAttributesClassName",
    }
    if not sources:
        out.required("spec", "must specify a volume type")
    for extra in sorted(sources)[1:]:
        out.forbidden(f"spec.{extra}", "may not specify more than 1 volume type")


def persistent_volume_claim(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = obj.get("spec") or {}
    claim_spec(spec, "spec", out)
    if old is None:
        return
    before = old.get("spec") or {}
    fixed = {
        k: v for k, v in before.items() if k not in ("resources", "volumeName", "volumeAttributesClassName")
    }
    now = {
        k: v
        for k, v in spec.items()
        if k in fixed or k not in ("resources", "volumeName", "volumeAttributesClassName")
    }
    if fixed != now or (before.get("volumeName") and before["volumeName"] != spec.get("volumeName")):
        out.forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        )


def storage_class(obj: Obj, old: Obj | None, out: Collector) -> None:
    provisioner = obj.get("provisioner") or ""
    if not provisioner:
        out.required("provisioner")
    else:
        out.each("provisioner", provisioner, names.qualified_name(provisioner.lower()))
    out.choice("reclaimPolicy", obj.get("reclaimPolicy", "Delete"), ("Delete", "Retain"))
    mode = obj.get("volumeBindingMode", "Immediate")
    out.choice("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer"))
    for key in obj.get("parameters") or {}:
        if not key:
            out.invalid("parameters", key, "field can not be empty.")
    if old is None:
        return
    for field in ("parameters", "provisioner", "reclaimPolicy"):
        if (obj.get(field) or None) != (old.get(field) or None):
            out.forbidden(field, f"updates to {field} are forbidden.")
    if mode != old.get("volumeBindingMode", "Immediate"):
        out.invalid("volumeBindingMode", mode, IMMUTABLE)


def claim_spec(spec: Obj, path: str, out: Collector) -> None:
    """The spec of a claim, wherever it stands."""
    _access(spec.get("accessModes") or (), out, f"{path}.accessModes")
    if spec.get("selector") is not None:
        label_selector(spec["selector"], f"{path}.selector", out)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        out.required(f"{path}.resources[storage]")
    else:
        _positive(f"{path}.resources[storage]", storage, out)
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        out.each(f"{path}.storageClassName", name, names.dns_subdomain(name))
    out.choice(f"{path}.volumeMode", spec.get("volumeMode", "Filesystem"), _MODES)


def _access(modes: Any, out: Collector, path: str = "spec.accessModes") -> None:
    if not modes:
        out.required(path, "at least 1 access mode is required")
    for mode in modes:
        out.choice(path, mode, _ACCESS)


def _positive(where: str, text: Any, out: Collector) -> None:
    value = amounts.parsed(text)
    if value is None or value <= 0:
        out.invalid(where, amounts.shown(text), "must be greater than zero")
