"""Protobuf bodies, built here byte by byte from the published field numbers."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.errors import StatusError
from windlass.api.resources import CONFIG_MAPS, LEASES, NAMESPACES, PODS
from windlass.api.wire import decode, protobuf, schema
from windlass.api.wire.schema import META

PROTOBUF = "application/vnd.kubernetes.protobuf"


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def envelope(version: str, kind: str, raw: bytes) -> bytes:
    meta = text(1, version) + text(2, kind)
    return protobuf.MAGIC + text(1, meta) + text(2, raw)


def test_a_namespace() -> None:
    body = envelope("v1", "Namespace", text(1, text(1, "team")) + text(2, b"") + text(3, b""))
    assert decode.decode_body(NAMESPACES, PROTOBUF, body) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "team"},
        "spec": {},
        "status": {},
    }


def test_maps_and_bytes() -> None:
    entry = text(1, "key") + text(2, "value")
    binary = text(1, "raw") + text(2, b"\x00\xff")
    body = envelope("v1", "ConfigMap", text(1, text(1, "c")) + text(2, entry) + text(3, binary))
    obj = decode.decode_body(CONFIG_MAPS, PROTOBUF, body)
    assert obj["data"] == {"key": "value"}
    assert obj["binaryData"] == {"raw": base64.b64encode(b"\x00\xff").decode()}


def test_a_pod_with_inlined_structs_quantities_and_ports() -> None:
    quantity = text(1, "1500m")
    limits = text(1, text(1, "cpu") + text(2, quantity))
    probe = text(1, text(2, text(1, "/healthz") + text(2, number(1, 1) + text(3, "http"))))
    container = text(1, "x") + text(2, "img") + text(3, "run") + text(8, limits) + text(10, probe)
    volume = text(1, "v") + text(2, text(2, text(1, "Memory")))
    spec = text(1, volume) + text(2, container) + number(4, 30) + number(11, 1) + number(25, -5)
    created = number(1, 1_767_268_800)
    metadata = text(1, "p") + text(8, created)
    obj = decode.decode_body(PODS, PROTOBUF, envelope("v1", "Pod", text(1, metadata) + text(2, spec)))
    assert obj["metadata"] == {"name": "p", "creationTimestamp": "2026-01-01T12:00:00Z"}
    assert obj["spec"] == {
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        "containers": [
            {
                "name": "x",
                "image": "img",
                "command": ["run"],
                "resources": {"limits": {"cpu": "1500m"}},
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
            }
        ],
        "terminationGracePeriodSeconds": 30,
        "hostNetwork": True,
        "priority": -5,
    }


def test_micro_times() -> None:
    renew = number(1, 1_767_268_800) + number(2, 123_456_000)
    spec = text(1, "me") + number(2, 15) + text(4, renew)
    body = envelope("coordination.k8s.io/v1", "Lease", text(1, text(1, "l")) + text(2, spec))
    assert decode.decode_body(LEASES, PROTOBUF, body)["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T12:00:00.123456Z",
    }


def test_delete_options() -> None:
    body = envelope("v1", "DeleteOptions", number(1, 0) + text(4, "Foreground"))
    assert decode.decode_options(PROTOBUF, body)["propagationPolicy"] == "Foreground"
    assert decode.decode_options(PROTOBUF, body)["gracePeriodSeconds"] == 0


def test_json_inside_the_envelope() -> None:
    raw = json.dumps({"metadata": {"name": "n"}}).encode()
    meta = text(1, "v1") + text(2, "Namespace")
    body = protobuf.MAGIC + text(1, meta) + text(2, raw) + text(4, "application/json")
    assert decode.decode_body(NAMESPACES, PROTOBUF, body)["metadata"] == {"name": "n"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"garbage", "expected prefix [107 56 115 0] (67617262616765)"),
        (b"k8s\x00garbage", "proto: illegal wireType 7"),
        (protobuf.MAGIC + text(2, b"\x0a\x05ab"), "proto: unexpected EOF"),
        (protobuf.MAGIC + b"\x12\xff", "proto: unexpected EOF"),
        (protobuf.MAGIC + text(2, b"\xff" * 12), "proto: integer overflow"),
    ],
)
def test_broken(body: bytes, words: str) -> None:
    with pytest.raises(StatusError) as caught:
        decode.decode_body(PODS, PROTOBUF, body)
    assert caught.value.code == 400
    assert words in caught.value.message


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_crash_the_decoder(raw: bytes) -> None:
    code = 200
    try:
        decode.decode_body(PODS, PROTOBUF, protobuf.MAGIC + raw)
    except StatusError as error:
        code = error.code
    assert code in (200, 400)


_META_FIELDS = {"name": 1, "generateName": 2, "namespace": 3, "uid": 5, "resourceVersion": 6}


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(_META_FIELDS)), st.text(min_size=1, max_size=8)),
    st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=3),
    st.integers(1, 2**62),
)
def test_metadata_survives(plain: dict[str, str], labels: dict[str, str], generation: int) -> None:
    raw = b"".join(text(_META_FIELDS[name], value) for name, value in plain.items())
    raw += b"".join(text(11, text(1, key) + text(2, value)) for key, value in labels.items())
    raw += number(7, generation)
    expected: dict[str, Any] = {**plain, "generation": generation}
    if labels:
        expected["labels"] = labels
    assert protobuf.message(schema.builtin(f"{META}ObjectMeta"), raw) == expected
