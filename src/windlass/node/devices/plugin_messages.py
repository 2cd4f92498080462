"""Messages of the kubelet's device plugin API (``v1beta1``), in protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.api.wire.protobuf import records

VERSION = "v1beta1"
REGISTER = "/v1beta1.Registration/Register"
LIST_AND_WATCH = "/v1beta1.DevicePlugin/ListAndWatch"
ALLOCATE = "/v1beta1.DevicePlugin/Allocate"
OPTIONS = "/v1beta1.DevicePlugin/GetDevicePluginOptions"
HEALTHY = "Healthy"


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes((*out, value))


def field(number: int, value: str | bytes) -> bytes:
    """Return a field of text or of an embedded message."""
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def _fields(raw: bytes) -> list[tuple[int, Any]]:
    """Return the fields of a message. Raises ``ValueError``."""
    try:
        return [(number, value) for number, _, value in records(raw)]
    except IndexError as error:
        raise ValueError("the message is incomplete") from error


def texts(raw: bytes) -> dict[int, str]:
    """Return the fields of a message as texts. Raises ``ValueError``."""
    return {
        number: value.decode(errors="replace") for number, value in _fields(raw) if isinstance(value, bytes)
    }


def register_request(endpoint: str, resource: str, version: str = VERSION) -> bytes:
    return field(1, version) + field(2, endpoint) + field(3, resource)


def devices(response: bytes) -> dict[str, bool]:
    """Return device id → health, of a ``ListAndWatchResponse``."""
    found = {}
    for number, value in _fields(response):
        if number == 1:
            device = texts(value)
            found[device.get(1, "")] = device.get(2, "") == HEALTHY
    return found


def devices_response(listed: Mapping[str, bool]) -> bytes:
    health = {True: HEALTHY, False: "Unhealthy"}
    return b"".join(field(1, field(1, name) + field(2, health[good])) for name, good in listed.items())


def allocate_request(ids: Iterable[str]) -> bytes:
    return field(1, b"".join(field(1, name) for name in ids))


def allocated_ids(request: bytes) -> list[str]:
    """Return the device ids of an ``AllocateRequest`` for one container."""
    return [
        value.decode()
        for number, container in _fields(request)
        if number == 1
        for inner, value in _fields(container)
        if inner == 1
    ]


def allocate_response(variables: Mapping[str, str]) -> bytes:
    entries = [field(1, field(1, name) + field(2, text)) for name, text in variables.items()]
    return field(1, b"".join(entries))


def environment(response: bytes) -> tuple[dict[str, str], Sequence[str]]:
    """Return the variables of an ``AllocateResponse`` for one container, and what else it asks for."""
    variables: dict[str, str] = {}
    others: dict[str, None] = {}
    names = {2: "mounts", 3: "devices", 5: "CDI devices"}
    for number, container in _fields(response):
        if number != 1:
            continue
        for inner, value in _fields(container):
            if inner == 1:
                entry = texts(value)
                variables[entry.get(1, "")] = entry.get(2, "")
            elif inner in names:
                others[names[inner]] = None
    return variables, list(others)
