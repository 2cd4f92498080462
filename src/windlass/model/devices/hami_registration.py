"""Parser for the devices that HAMi's device plugin registers on a node.

The form is HAMi's protocol: a JSON list of objects (``id``, ``count``, ``devmem`` in
MiB, ``devcore``, ``type``, ``numa``, ``mode``, ``health``, ``index``). Older plugins
write text, ``UUID,slots,MiB,cores,type,numa,health:…``.

* Memory is what the plugin allocates. It exceeds the device's memory if the plugin is
  configured to scale it.
* ``count`` is the maximum number of containers that use the device at once
  (``deviceSplitCount``).
* A device in MIG mode is left to HAMi, as the plugin needs slice positions that HAMi's
  own scheduler writes.
* Unreadable entries are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from windlass.api.devices.request import GPU
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Device

_MAX_MIB = 1 << 24
_MAX_DEVICES = 1024


class _Wire(msgspec.Struct, gc=False):
    id: str = ""
    count: int = 0
    devmem: int = 0
    type: str = ""
    numa: int = -1
    mode: str = ""
    health: bool = False
    index: int = -1


_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_entry = msgspec.json.Decoder(_Wire)


@lru_cache(maxsize=1024)
def read(text: str) -> tuple[Device, ...]:
    """Return the devices, numbered from 0 in their order; none if the text cannot be read."""
    entries = _json(text) if text.lstrip().startswith("[") else _legacy(text)
    valid = [wire for wire in entries if wire.id and 0 < wire.devmem <= _MAX_MIB]
    return tuple(_device(index, wire) for index, wire in enumerate(valid[:_MAX_DEVICES]))


def _device(index: int, wire: _Wire) -> Device:
    mode = DeviceMode.SLICED if wire.mode == "mig" else DeviceMode.PLAIN
    return Device(
        index=index,
        resource=GPU,
        model=wire.type,
        memory_mib=wire.devmem,
        uuid=wire.id,
        healthy=wire.health and mode is not DeviceMode.SLICED,
        numa=wire.numa,
        mode=mode,
        slots=min(max(0, wire.count), _MAX_DEVICES),
    )


def _json(text: str) -> Iterator[_Wire]:
    try:
        entries = _decoder.decode(text.encode())
    except msgspec.DecodeError:
        return
    for entry in entries:
        try:
            yield _entry.decode(entry)
        except msgspec.DecodeError:
            continue


def _legacy(text: str) -> Iterator[_Wire]:
    for piece in text.split(":"):
        fields = [field.strip() for field in piece.split(",")]
        if len(fields) < 7 or not (fields[2].isascii() and fields[2].isdigit() and len(fields[2]) < 10):
            continue
        numa = int(fields[5]) if fields[5].isascii() and fields[5].isdigit() and len(fields[5]) < 5 else -1
        healthy = fields[6].lower() == "true"
        count = int(fields[1]) if fields[1].isascii() and fields[1].isdigit() and len(fields[1]) < 5 else 0
        yield _Wire(
            id=fields[0], count=count, devmem=int(fields[2]), type=fields[4], numa=numa, health=healthy
        )
