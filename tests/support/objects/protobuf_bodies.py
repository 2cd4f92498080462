"""Kubernetes protobuf bodies as kubectl writes them: enough of an encoder for a few kinds."""

from __future__ import annotations

from collections.abc import Mapping

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: bytes | str | int) -> bytes:
    """A length-delimited field, or a varint."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def string_map(number: int, entries: Mapping[str, str]) -> bytes:
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in entries.items())


def metadata(name: str, labels: Mapping[str, str] | None = None) -> bytes:
    """``ObjectMeta``: name 1, labels 11."""
    return field(1, name) + string_map(11, labels or {})


def enveloped(api_version: str, kind: str, message: bytes) -> bytes:
    """``k8s\\0`` and a ``runtime.Unknown``."""
    type_meta = field(1, api_version) + field(2, kind)
    return b"k8s\x00" + field(1, type_meta) + field(2, message) + field(3, "") + field(4, "")


def namespace(name: str, labels: Mapping[str, str] | None = None) -> bytes:
    message = field(1, metadata(name, labels)) + field(2, b"") + field(3, b"")
    return enveloped("v1", "Namespace", message)


def config_map(name: str, data: Mapping[str, str]) -> bytes:
    return enveloped("v1", "ConfigMap", field(1, metadata(name)) + string_map(2, data))


def secret(name: str, data: Mapping[str, bytes]) -> bytes:
    entries = b"".join(field(2, field(1, key) + field(2, value)) for key, value in data.items())
    return enveloped("v1", "Secret", field(1, metadata(name)) + entries + field(3, "Opaque"))


def priority_class(name: str, value: int, description: str) -> bytes:
    message = field(1, metadata(name)) + field(2, value) + field(3, 0) + field(4, description)
    return enveloped("scheduling.k8s.io/v1", "PriorityClass", message)


def resource_quota(name: str, hard: Mapping[str, str]) -> bytes:
    """``spec`` 2, ``hard`` 1 (a map to ``Quantity``, whose string is field 1)."""
    entries = b"".join(field(1, field(1, key) + field(2, field(1, value))) for key, value in hard.items())
    return enveloped("v1", "ResourceQuota", field(1, metadata(name)) + field(2, entries) + field(3, b""))


def access_review(verb: str, resource: str, namespace_: str) -> bytes:
    """SelfSubjectAccessReview: spec 2, resourceAttributes 1 (namespace 1, verb 2, group 3, resource 5)."""
    attributes = field(1, namespace_) + field(2, verb) + field(3, "") + field(5, resource)
    return enveloped(
        "authorization.k8s.io/v1", "SelfSubjectAccessReview", field(1, b"") + field(2, field(1, attributes))
    )
