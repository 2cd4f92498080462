"""GPUs that this process can see and use, as one line of JSON, from CUDA's driver
library itself.

``python gpu_probe.py [SECONDS]`` holds the allocated memory for that time. Without
``libcuda`` only the environment is reported. It uses the standard library only, because
it runs as a pod.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any

_WORDS = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
)
_MIB = 2**20
_MULTIPROCESSORS = 16
_STEP_MIB = 512


class CudaError(Exception):
    """A call of the driver library that was refused."""


def _call(cuda: Any, name: str, *arguments: Any) -> None:
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        words = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(words))
        raise CudaError(f"{name}: {(words.value or b'?').decode()} ({code})")


def _uuid(cuda: Any, device: int) -> str:
    room = (ctypes.c_ubyte * 16)()
    try:
        _call(cuda, "cuDeviceGetUuid_v2", room, device)
    except AttributeError:
        _call(cuda, "cuDeviceGetUuid", room, device)
    words = bytes(room).hex()
    return f"{words[:8]}-{words[8:12]}-{words[12:16]}-{words[16:20]}-{words[20:]}"


def _allocate(cuda: Any, most_mib: int) -> tuple[int, str]:
    """Take memory in steps until it is refused or ``most_mib`` is reached: how much, and the refusal."""
    taken = 0
    pointer = ctypes.c_uint64()
    while taken < most_mib:
        try:
            _call(cuda, "cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(_STEP_MIB * _MIB))
        except CudaError as error:
            return taken, str(error)
        taken += _STEP_MIB
    return taken, ""


def look(cuda: Any) -> list[dict[str, Any]]:
    """Every device that this process sees: name, UUID, memory as CUDA tells it, SMs, what can be had."""
    _call(cuda, "cuInit", 0)
    count = ctypes.c_int()
    _call(cuda, "cuDeviceGetCount", ctypes.byref(count))
    found = []
    for number in range(count.value):
        device = ctypes.c_int()
        _call(cuda, "cuDeviceGet", ctypes.byref(device), number)
        name = ctypes.create_string_buffer(256)
        _call(cuda, "cuDeviceGetName", name, 256, device)
        context = ctypes.c_void_p()
        _call(cuda, "cuCtxCreate_v2", ctypes.byref(context), 0, device)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        sms = ctypes.c_int()
        _call(cuda, "cuDeviceGetAttribute", ctypes.byref(sms), _MULTIPROCESSORS, device)
        record = {
            "uuid": _uuid(cuda, device.value),
            "name": name.value.decode(),
            "totalMib": total.value // _MIB,
            "freeMib": free.value // _MIB,
            "multiprocessors": sms.value,
        }
        if os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"):
            record["tookMib"], record["refusal"] = _allocate(cuda, total.value // _MIB + 2 * _STEP_MIB)
        found.append(record)
    return found


def main(seconds: float) -> int:
    said: dict[str, Any] = {"environment": {w: os.environ[w] for w in _WORDS if w in os.environ}}
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        said["cuda"] = f"not there: {error}"
    else:
        try:
            said["devices"] = look(cuda)
        except CudaError as error:
            said["cuda"] = str(error)
    print(json.dumps(said), flush=True)
    time.sleep(seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))
