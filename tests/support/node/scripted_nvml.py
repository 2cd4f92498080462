"""An NVML without cards: the C functions that the product calls, by name, over a script in a file.

The real binding (``pynvml``) runs on top of it, so wrong struct versions, wrong arguments and missing calls
show. ``script`` is a JSON file: ``{"driver": …, "cards": [{…}]}``; it is read at every call and written when
a call changes something, so several processes (an agent that is killed, its successor, a test) see one machine.

What it does as hardware does: MIG instances at NVML's placements without overlap and within the card's compute
slices, one ``+me`` per card, refusals with NVML's codes (in use, no permission, insufficient resources), MIG
devices only with a compute instance, UUIDs that are new for every instance, instances that are gone after
``reboot``, events (XIDs), cards that are lost.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SUCCESS, INVALID, UNSUPPORTED, PERMISSION, NOT_FOUND, SIZE = 0, 2, 3, 4, 6, 7
NOT_LOADED, TIMEOUT, LOST, IN_USE, INSUFFICIENT = 9, 10, 15, 19, 23
NONE = 0xFFFFFFFF
_CARD, _GPU_INSTANCE, _COMPUTE_INSTANCE, _MIG, _EVENTS = 1, 2, 3, 4, 5
_XID = 8
_copies = itertools.count()

SEVEN = tuple(range(7))
PLACES = (
    (0, "1g", SEVEN, 1, 1, 7),
    (7, "1g+me", SEVEN, 1, 1, 1),
    (9, "1g2", (0, 2, 4, 6), 2, 1, 4),
    (1, "2g", (0, 2, 4), 2, 2, 3),
    (2, "3g", (0, 4), 4, 3, 2),
    (3, "4g", (0,), 4, 4, 1),
    (4, "7g", (0,), 8, 7, 1),
)
"""(profile slot, kind, starts, size, compute slices, most), of A100 and H100."""
IDS = {"1g": 19, "1g+me": 20, "1g2": 15, "2g": 14, "3g": 9, "4g": 5, "7g": 0}
A100_40 = {
    "name": "NVIDIA A100-SXM4-40GB",
    "memoryMib": 40960,
    "compute": [8, 0],
    "mig": {
        "1g": ["1g.5gb", 4864, 14],
        "1g+me": ["1g.5gb+me", 4864, 14],
        "1g2": ["1g.10gb", 9856, 14],
        "2g": ["2g.10gb", 9856, 28],
        "3g": ["3g.20gb", 19968, 42],
        "4g": ["4g.20gb", 19968, 56],
        "7g": ["7g.40gb", 40192, 98],
    },
}
H100_80 = {
    "name": "NVIDIA H100 80GB HBM3",
    "memoryMib": 81559,
    "compute": [9, 0],
    "mig": {
        "1g": ["1g.10gb", 9984, 16],
        "1g+me": ["1g.10gb+me", 9984, 16],
        "1g2": ["1g.20gb", 20096, 26],
        "2g": ["2g.20gb", 20096, 32],
        "3g": ["3g.40gb", 40448, 60],
        "4g": ["4g.40gb", 40448, 64],
        "7g": ["7g.80gb", 81152, 132],
    },
}
T4 = {"name": "Tesla T4", "memoryMib": 15360, "compute": [7, 5], "mig": None}


def card(kind: dict[str, Any], index: int, **changes: Any) -> dict[str, Any]:
    """One card of the script. ``migMode``, ``numa``, ``links`` (indices, or ``switch``) may be changed."""
    return {
        **kind,
        "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, str(index))}",
        "bus": f"00000000:{0x10 + index:02X}:00.0",
        "migMode": False,
        "numa": 0,
        "links": [],
        "instances": [],
        "processes": [],
        "ecc": 0,
        "remapFailed": False,
        "lost": False,
        **changes,
    }


class Script:
    """The machine's state in its file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def write(cls, path: Path, cards: list[dict[str, Any]], **more: Any) -> Script:
        script = cls(path)
        path.write_text(json.dumps({"cards": cards, "events": [], "next": 1, "calls": {}, **more}))
        return script

    @contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        """The state, locked; what is changed in it is written back."""
        with open(self.path, "r+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            text = stream.read()
            state = json.loads(text)
            yield state
            after = json.dumps(state)
            if after != text:
                stream.seek(0)
                stream.write(after)
                stream.truncate()

    @property
    def cards(self) -> list[dict[str, Any]]:
        with self.open() as state:  # the agent may be writing
            return state["cards"]

    def xid(self, index: int, code: int) -> None:
        """The driver tells a fatal error."""
        with self.open() as state:
            state["events"].append({"card": index, "type": _XID, "data": code})

    def change(self, index: int, **fields: Any) -> None:
        with self.open() as state:
            state["cards"][index].update(fields)

    def run(self, index: int, pid: int, mib: int, instance: int = NONE) -> None:
        """A compute process appears on a card."""
        with self.open() as state:
            state["cards"][index]["processes"].append({"pid": pid, "mib": mib, "instance": instance})

    def reboot(self) -> None:
        """MIG instances and processes do not survive it; MIG mode does."""
        with self.open() as state:
            for each in state["cards"]:
                each.update(instances=[], processes=[], lost=False, ecc=0)
            state["events"] = []


class _Refusal(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Function:
    """A C function of the library, as ctypes would give it."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> int:
        try:
            self._call(*arguments)
        except _Refusal as refusal:
            return refusal.code
        return SUCCESS


class Library:
    """What ``ctypes.CDLL("libnvidia-ml.so.1")`` is on a machine with a driver."""

    def __init__(self, script: Script, binding: Any) -> None:
        self._script = script
        self._binding = binding
        self._registered: set[int] = set()

    def __getattr__(self, name: str) -> _Function:
        call = _CALLS.get(name)
        if call is None:
            raise AttributeError(name)
        function = _Function(lambda *arguments: call(self, *arguments))
        setattr(self, name, function)
        return function

    # -- handles: kind, card, number in one address -----------------------------------------------

    def give(self, reference: Any, kind: int, index: int, number: int = 0) -> None:
        address = (kind << 40) | ((index + 1) << 24) | number
        target = getattr(reference, "_obj", reference)
        ctypes.memmove(ctypes.addressof(target), ctypes.byref(ctypes.c_uint64(address)), 8)

    def take(self, handle: Any, kind: int) -> tuple[int, int]:
        """(card, number) of a handle."""
        address = ctypes.cast(handle, ctypes.c_void_p).value or 0
        if address >> 40 != kind:
            raise _Refusal(INVALID)
        return ((address >> 24) & 0xFFFF) - 1, address & 0xFFFFFF

    @contextmanager
    def state(self, *, count: str = "") -> Iterator[dict[str, Any]]:
        with self._script.open() as state:
            if not state.get("driver", True):
                raise _Refusal(NOT_LOADED)
            if count:
                state["calls"][count] = state["calls"].get(count, 0) + 1
            yield state

    @contextmanager
    def card(self, handle: Any, *, alive: bool = True) -> Iterator[dict[str, Any]]:
        index, _ = self.take(handle, _CARD)
        with self.state() as state:
            found = state["cards"][index]
            if alive and found["lost"]:
                raise _Refusal(LOST)
            yield found

    def privileged(self) -> None:
        with self.state() as state:
            if not state.get("root", True):
                raise _Refusal(PERMISSION)


def _put(reference: Any, value: Any) -> None:
    getattr(reference, "_obj", reference).value = value


def _text(buffer: Any, value: str) -> None:
    buffer.value = value.encode()


# -- the driver and its cards ----------------------------------------------------------------------


def _init(lib: Library, _flags: Any) -> None:
    with lib.state():
        pass


def _shutdown(lib: Library) -> None:
    return None


def _driver(lib: Library, buffer: Any, _size: Any) -> None:
    _text(buffer, "550.54.15")


def _cuda(lib: Library, reference: Any) -> None:
    _put(reference, 12040)


def _count(lib: Library, reference: Any) -> None:
    with lib.state() as state:
        _put(reference, len(state["cards"]))


def _by_index(lib: Library, index: Any, reference: Any) -> None:
    number = getattr(index, "value", index)
    with lib.state() as state:
        if not 0 <= number < len(state["cards"]):
            raise _Refusal(INVALID)
        if state["cards"][number]["lost"]:
            raise _Refusal(LOST)
    lib.give(reference, _CARD, number)


def _by_uuid(lib: Library, word: Any, reference: Any) -> None:
    text = getattr(word, "value", word)
    wanted = text.decode() if isinstance(text, bytes) else text
    with lib.state() as state:
        for index, each in enumerate(state["cards"]):
            if each["uuid"] == wanted:
                if each["lost"]:
                    raise _Refusal(LOST)
                lib.give(reference, _CARD, index)
                return
            for instance in each["instances"]:
                if instance["uuid"] == wanted and instance["uuid"]:
                    lib.give(reference, _MIG, index, instance["id"])
                    return
    raise _Refusal(NOT_FOUND)


def _mig_instance(lib: Library, handle: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    address = ctypes.cast(handle, ctypes.c_void_p).value or 0
    if address >> 40 != _MIG:
        return None
    index, number = lib.take(handle, _MIG)
    with lib.state() as state:
        each = state["cards"][index]
        return each, next(i for i in each["instances"] if i["id"] == number)


def _uuid(lib: Library, handle: Any, buffer: Any, _size: Any) -> None:
    mig = _mig_instance(lib, handle)
    if mig is not None:
        _text(buffer, mig[1]["uuid"])
        return
    with lib.card(handle) as each:
        _text(buffer, each["uuid"])


def _name(lib: Library, handle: Any, buffer: Any, _size: Any) -> None:
    mig = _mig_instance(lib, handle)
    if mig is not None:
        _text(buffer, f"{mig[0]['name']} MIG {mig[1]['profile']}")
        return
    with lib.card(handle) as each:
        _text(buffer, each["name"])


def _memory(lib: Library, handle: Any, reference: Any) -> None:
    with lib.card(handle) as each:
        sliced = each["migMode"]
    if sliced:
        lib.privileged()  # of all slices together only root may ask
    with lib.card(handle) as each:
        info = reference._obj
        info.total = each["memoryMib"] * 2**20
        info.used = sum(process["mib"] for process in each["processes"]) * 2**20
        info.free = info.total - info.used


def _capability(lib: Library, handle: Any, major: Any, minor: Any) -> None:
    with lib.card(handle) as each:
        _put(major, each["compute"][0])
        _put(minor, each["compute"][1])


def _pci(lib: Library, handle: Any, reference: Any) -> None:
    with lib.card(handle) as each:
        reference._obj.busId = each["bus"].encode()


def _affinity(lib: Library, handle: Any, _size: Any, reference: Any, _scope: Any) -> None:
    with lib.card(handle) as each:
        if each["numa"] < 0:
            raise _Refusal(UNSUPPORTED)
        reference._obj[0] = 1 << each["numa"]


def _link_state(lib: Library, handle: Any, link: Any, reference: Any) -> None:
    with lib.card(handle) as each:
        if link >= len(each["links"]):
            raise _Refusal(INVALID)
        _put(reference, 1)


def _link_peer(lib: Library, handle: Any, link: Any, reference: Any) -> None:
    with lib.card(handle) as each:
        peer = each["links"][link]
    with lib.state() as state:
        bus = "00000000:C0:00.0" if peer == "switch" else state["cards"][peer]["bus"]
    reference._obj.busId = bus.encode()


def _link_kind(lib: Library, handle: Any, link: Any, reference: Any) -> None:
    with lib.card(handle) as each:
        _put(reference, 2 if each["links"][link] == "switch" else 0)


def _fabric(lib: Library, handle: Any, reference: Any) -> None:
    with lib.card(handle) as each:
        if not each.get("clique"):
            raise _Refusal(UNSUPPORTED)
        info = reference._obj
        if info.version != lib._binding.nvmlGpuFabricInfo_v2:
            raise _Refusal(25)
        cluster, _, number = each["clique"].partition(".")
        for place, byte in enumerate(uuid.UUID(cluster).bytes):
            info.clusterUuid[place] = byte
        info.cliqueId, info.state, info.status = int(number), 3, 0


# -- MIG ---------------------------------------------------------------------------------------------


def _mig_mode(lib: Library, handle: Any, current: Any, pending: Any) -> None:
    with lib.card(handle) as each:
        if not each["mig"]:
            raise _Refusal(UNSUPPORTED)
        _put(current, int(each["migMode"]))
        _put(pending, int(each["migMode"]))


def _profile_info(lib: Library, handle: Any, slot: Any, reference: Any) -> None:
    with lib.card(handle) as each:
        row = next((row for row in PLACES if row[0] == slot), None)
        if row is None or not each["mig"]:
            raise _Refusal(UNSUPPORTED)
        _, kind, _, _, compute, most = row
        name, mib, sms = each["mig"][kind]
        info = reference._obj
        if info.version != lib._binding.nvmlGpuInstanceProfileInfo_v2:
            raise _Refusal(25)
        info.id, info.sliceCount, info.instanceCount = IDS[kind], compute, most
        info.multiprocessorCount, info.memorySizeMB = sms, mib
        info.copyEngineCount, info.decoderCount, info.jpegCount = (
            compute,
            compute,
            int(kind in ("1g+me", "7g")),
        )
        info.ofaCount = int(kind in ("1g+me", "7g"))
        info.name = f"MIG {name}".encode()


def _kind_of(profile_id: Any) -> tuple[int, str, tuple[int, ...], int, int, int]:
    kind = next((kind for kind, number in IDS.items() if number == profile_id), None)
    if kind is None:
        raise _Refusal(INVALID)
    return next(row for row in PLACES if row[1] == kind)


def _placements(lib: Library, handle: Any, profile_id: Any, room: Any, count: Any) -> None:
    lib.privileged()
    _, _, starts, size, _, _ = _kind_of(profile_id)
    with lib.card(handle):
        if room is not None:
            for place, start in enumerate(starts):
                room[place].start, room[place].size = start, size
        _put(count, len(starts))


def _instances(lib: Library, handle: Any, profile_id: Any, room: Any, count: Any) -> None:
    lib.privileged()
    index, _ = lib.take(handle, _CARD)
    with lib.card(handle) as each:
        if not each["migMode"]:
            raise _Refusal(UNSUPPORTED)
        found = [i["id"] for i in each["instances"] if i["profileId"] == profile_id]
    for place, number in enumerate(found):
        _into(lib, room, place, _GPU_INSTANCE, index, number)
    _put(count, len(found))


def _into(lib: Library, room: Any, place: int, kind: int, index: int, number: int) -> None:
    step = ctypes.sizeof(ctypes.c_void_p)
    address = ctypes.c_uint64((kind << 40) | ((index + 1) << 24) | number)
    ctypes.memmove(ctypes.addressof(room) + place * step, ctypes.byref(address), 8)


def _create(lib: Library, handle: Any, profile_id: Any, placement: Any, reference: Any) -> None:
    lib.privileged()
    _, kind, starts, size, compute, most = _kind_of(profile_id)
    index, _ = lib.take(handle, _CARD)
    wanted = placement._obj
    with lib.state(count="create") as state:
        if state.get("createRefusal"):
            raise _Refusal(state["createRefusal"])
        each = state["cards"][index]
        if each["lost"]:
            raise _Refusal(LOST)
        if not each["migMode"]:
            raise _Refusal(UNSUPPORTED)
        if wanted.start not in starts or wanted.size != size:
            raise _Refusal(INVALID)
        present = each["instances"]
        taken = any(
            i["start"] < wanted.start + size and wanted.start < i["start"] + i["size"] for i in present
        )
        slices = compute + sum(i["compute"] for i in present)
        same = sum(i["profileId"] == profile_id for i in present)
        if taken or slices > 7 or same >= most:
            raise _Refusal(INSUFFICIENT)
        number = state["next"]
        state["next"] = number + 1
        present.append(
            {
                "id": number,
                "profileId": profile_id,
                "profile": each["mig"][kind][0],
                "start": int(wanted.start),
                "size": size,
                "compute": compute,
                "uuid": "",
            }
        )
    lib.give(reference, _GPU_INSTANCE, index, number)


@contextmanager
def _inside(lib: Library, handle: Any, *, count: str = "") -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    index, number = lib.take(handle, _GPU_INSTANCE)
    with lib.state(count=count) as state:
        each = state["cards"][index]
        instance = next((i for i in each["instances"] if i["id"] == number), None)
        if instance is None:
            raise _Refusal(NOT_FOUND)
        yield each, instance


def _instance_info(lib: Library, handle: Any, reference: Any) -> None:
    with _inside(lib, handle) as (_, instance):
        info = reference._obj
        info.id, info.profileId = instance["id"], instance["profileId"]
        info.placement.start, info.placement.size = instance["start"], instance["size"]


def _instance_by_id(lib: Library, handle: Any, number: Any, reference: Any) -> None:
    lib.privileged()
    index, _ = lib.take(handle, _CARD)
    with lib.card(handle) as each:
        if not any(i["id"] == number for i in each["instances"]):
            raise _Refusal(NOT_FOUND)
    lib.give(reference, _GPU_INSTANCE, index, number)


def _destroy(lib: Library, handle: Any) -> None:
    lib.privileged()
    with _inside(lib, handle, count="destroy") as (each, instance):
        if instance["uuid"]:
            raise _Refusal(IN_USE)  # a compute instance is in it
        each["instances"].remove(instance)


_COMPUTE_SLOTS = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 7: 1}


def _compute_profile(lib: Library, handle: Any, slot: Any, _engine: Any, reference: Any) -> None:
    with _inside(lib, handle) as (_, instance):
        width = _COMPUTE_SLOTS.get(slot)
        if width is None or width > instance["compute"]:
            raise _Refusal(UNSUPPORTED)
        reference._obj.id, reference._obj.sliceCount = slot, width


def _create_compute(lib: Library, handle: Any, profile_id: Any, reference: Any) -> None:
    lib.privileged()
    index, number = lib.take(handle, _GPU_INSTANCE)
    with _inside(lib, handle) as (_, instance):
        if instance["uuid"]:
            raise _Refusal(INSUFFICIENT)
        instance["uuid"] = f"MIG-{uuid.uuid4()}"
        instance["computeProfile"] = profile_id
    lib.give(reference, _COMPUTE_INSTANCE, index, number)


def _compute_instances(lib: Library, handle: Any, profile_id: Any, room: Any, count: Any) -> None:
    lib.privileged()
    index, number = lib.take(handle, _GPU_INSTANCE)
    with _inside(lib, handle) as (_, instance):
        found = bool(instance["uuid"]) and instance.get("computeProfile") == profile_id
    if found:
        _into(lib, room, 0, _COMPUTE_INSTANCE, index, number)
    _put(count, int(found))


def _destroy_compute(lib: Library, handle: Any) -> None:
    lib.privileged()
    index, number = lib.take(handle, _COMPUTE_INSTANCE)
    with lib.state() as state:
        each = state["cards"][index]
        instance = next(i for i in each["instances"] if i["id"] == number)
        if any(process["instance"] == number for process in each["processes"]):
            raise _Refusal(IN_USE)
        instance["uuid"] = ""


def _most_mig(lib: Library, handle: Any, reference: Any) -> None:
    with lib.card(handle) as each:
        _put(reference, 7 if each["mig"] else 0)


def _mig_by_index(lib: Library, handle: Any, place: Any, reference: Any) -> None:
    index, _ = lib.take(handle, _CARD)
    with lib.card(handle) as each:
        made = [i for i in each["instances"] if i["uuid"]]
    number = getattr(place, "value", place)
    if number >= len(made):
        raise _Refusal(NOT_FOUND)
    lib.give(reference, _MIG, index, made[number]["id"])


def _instance_of_mig(lib: Library, handle: Any, reference: Any) -> None:
    _put(reference, lib.take(handle, _MIG)[1])


# -- health and use ----------------------------------------------------------------------------------


def _remapped(lib: Library, handle: Any, *references: Any) -> None:
    with lib.card(handle) as each:
        if not each["mig"]:
            raise _Refusal(UNSUPPORTED)
        for reference, value in zip(references, (0, 0, 0, int(each["remapFailed"])), strict=True):
            _put(reference, value)


def _ecc(lib: Library, handle: Any, _kind: Any, _counter: Any, reference: Any) -> None:
    with lib.card(handle) as each:
        _put(reference, each["ecc"])


def _processes(lib: Library, handle: Any, count: Any, room: Any) -> None:
    with lib.card(handle) as each:
        found = each["processes"]
    if room is None:
        _put(count, len(found))
        if found:
            raise _Refusal(SIZE)
        return
    for place, process in enumerate(found):
        room[place].pid, room[place].usedGpuMemory = process["pid"], process["mib"] * 2**20
        room[place].gpuInstanceId, room[place].computeInstanceId = process["instance"], 0
    _put(count, len(found))


def _utilization(lib: Library, handle: Any, reference: Any) -> None:
    with lib.card(handle) as each:
        if each["migMode"]:
            raise _Refusal(UNSUPPORTED)
        reference._obj.gpu, reference._obj.memory = each.get("utilization", 0), 0


def _no_processes(lib: Library, handle: Any, count: Any, room: Any) -> None:
    _put(count, 0)


def _events(lib: Library, reference: Any) -> None:
    lib.give(reference, _EVENTS, 0)


def _event_types(lib: Library, handle: Any, reference: Any) -> None:
    with lib.card(handle):
        _put(reference, _XID | 2)


def _register(lib: Library, handle: Any, kinds: Any, _set: Any) -> None:
    index, _ = lib.take(handle, _CARD)
    if getattr(kinds, "value", kinds) & _XID:
        lib._registered.add(index)


def _wait(lib: Library, _set: Any, reference: Any, _milliseconds: Any) -> None:
    with lib.state() as state:
        events = [event for event in state["events"] if event["card"] in lib._registered]
        if events:
            state["events"].remove(events[0])
    if not events:
        time.sleep(0.05)
        raise _Refusal(TIMEOUT)
    data = reference._obj
    data.eventType, data.eventData = events[0]["type"], events[0]["data"]
    data.gpuInstanceId = data.computeInstanceId = NONE
    address = ctypes.c_uint64((_CARD << 40) | ((events[0]["card"] + 1) << 24))
    ctypes.memmove(ctypes.addressof(data), ctypes.byref(address), 8)


def _free(lib: Library, _set: Any) -> None:
    lib._registered.clear()


_CALLS: dict[str, Callable[..., None]] = {
    "nvmlInitWithFlags": _init,
    "nvmlShutdown": _shutdown,
    "nvmlSystemGetDriverVersion": _driver,
    "nvmlSystemGetCudaDriverVersion_v2": _cuda,
    "nvmlDeviceGetCount_v2": _count,
    "nvmlDeviceGetHandleByIndex_v2": _by_index,
    "nvmlDeviceGetHandleByUUID": _by_uuid,
    "nvmlDeviceGetUUID": _uuid,
    "nvmlDeviceGetName": _name,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetCudaComputeCapability": _capability,
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetMemoryAffinity": _affinity,
    "nvmlDeviceGetNvLinkState": _link_state,
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": _link_peer,
    "nvmlDeviceGetNvLinkRemoteDeviceType": _link_kind,
    "nvmlDeviceGetGpuFabricInfoV": _fabric,
    "nvmlDeviceGetMigMode": _mig_mode,
    "nvmlDeviceGetGpuInstanceProfileInfoV": _profile_info,
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2": _placements,
    "nvmlDeviceGetGpuInstances": _instances,
    "nvmlDeviceCreateGpuInstanceWithPlacement": _create,
    "nvmlGpuInstanceGetInfo": _instance_info,
    "nvmlDeviceGetGpuInstanceById": _instance_by_id,
    "nvmlGpuInstanceDestroy": _destroy,
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV": _compute_profile,
    "nvmlGpuInstanceCreateComputeInstance": _create_compute,
    "nvmlGpuInstanceGetComputeInstances": _compute_instances,
    "nvmlComputeInstanceDestroy": _destroy_compute,
    "nvmlDeviceGetMaxMigDeviceCount": _most_mig,
    "nvmlDeviceGetMigDeviceHandleByIndex": _mig_by_index,
    "nvmlDeviceGetGpuInstanceId": _instance_of_mig,
    "nvmlDeviceGetRemappedRows": _remapped,
    "nvmlDeviceGetTotalEccErrors": _ecc,
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": _no_processes,
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlEventSetCreate": _events,
    "nvmlDeviceGetSupportedEventTypes": _event_types,
    "nvmlDeviceRegisterEvents": _register,
    "nvmlEventSetWait_v2": _wait,
    "nvmlEventSetFree": _free,
}


def binding(script: Script) -> Any:
    """A fresh copy of the real binding whose library is the script."""
    import importlib.util

    name = "pynvml"
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return load_binding(spec.origin, script)


def load_binding(origin: str, script: Script) -> Any:
    """The binding from its file, over the script."""
    import importlib.util

    name = f"scripted_pynvml_{next(_copies)}"
    spec = importlib.util.spec_from_file_location(name, origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # it looks itself up there while it is loaded
    spec.loader.exec_module(module)
    module.nvmlLib = Library(script, module)  # type: ignore[attr-defined]
    return module
