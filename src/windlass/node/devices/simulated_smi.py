"""``nvidia-smi`` for pods on simulated GPUs, with the commands and formats that users call.

It runs as a program on the pod's PATH and reads the record that the agent has written for the
container. It says that the GPUs are simulated: in the table, in the driver version, and on stderr for
the formats that programs parse. A simulated GPU computes nothing, so its utilisation is 0.

This module uses only the standard library and few imports, because it starts as a program.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from windlass.kits import monotonic

VARIABLE = "WINDLASS_SIMULATED_GPUS"
"""Environment variable of a container: path of the record of its GPUs."""
DRIVER, CUDA = "simulated", "n/a"
NOTE = "nvidia-smi: these GPUs are simulated by windlass: nothing computes on them"
_NO_DEVICES, _USAGE, _UNSUPPORTED = 6, 2, 3
_WIDTH = 77

_HELP = """\
NVIDIA System Management Interface of simulated GPUs (windlass).

    nvidia-smi [-i INDEX] [-l SECONDS]        table of the GPUs of this container
    nvidia-smi -L                             list of the GPUs
    nvidia-smi -q                             all that is known
    nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]
    nvidia-smi --query-compute-apps=FIELDS --format=csv[,noheader][,nounits]
    nvidia-smi dmon [-s LETTERS] [-c COUNT] [-d SECONDS] [-i INDEX]
    nvidia-smi pmon [-c COUNT]
    nvidia-smi topo -m
"""

_FIELDS: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "index": ("", lambda gpu: gpu["index"]),
    "count": ("", lambda gpu: gpu["count"]),
    "name": ("", lambda gpu: gpu["name"]),
    "gpu_name": ("", lambda gpu: gpu["name"]),
    "uuid": ("", lambda gpu: gpu["uuid"]),
    "gpu_uuid": ("", lambda gpu: gpu["uuid"]),
    "driver_version": ("", lambda gpu: DRIVER),
    "memory.total": ("MiB", lambda gpu: gpu["memory_mib"]),
    "memory.used": ("MiB", lambda gpu: gpu["used_mib"]),
    "memory.free": ("MiB", lambda gpu: gpu["memory_mib"] - gpu["used_mib"]),
    "memory.reserved": ("MiB", lambda gpu: 0),
    "utilization.gpu": ("%", lambda gpu: 0),
    "utilization.memory": ("%", lambda gpu: 0),
    "compute_cap": ("", lambda gpu: gpu["compute"] or "[N/A]"),
    "mig.mode.current": ("", lambda gpu: "Enabled" if gpu["mig"] else "Disabled"),
    "compute_mode": ("", lambda gpu: "Default"),
    "persistence_mode": ("", lambda gpu: "Enabled"),
    "timestamp": ("", lambda gpu: _now("%Y/%m/%d %H:%M:%S.000")),
}
"""Field of ``--query-gpu`` → unit and value. Sensors of a simulated GPU have no value."""
_SENSORS = (
    "temperature.",
    "power.",
    "clocks.",
    "fan.speed",
    "pstate",
    "ecc.",
    "pci.",
    "pcie.",
    "vbios_version",
    "serial",
    "gpu_serial",
    "gpu_bus_id",
    "retired_pages.",
    "encoder.",
    "display_",
    "enforced.",
    "clocks_",
    "addressing_mode",
)
"""Fields that ``--query-gpu`` knows and that a simulated GPU does not have, by their beginning."""
_APPS = {
    "pid": "",
    "process_name": "",
    "name": "",
    "used_memory": "MiB",
    "used_gpu_memory": "MiB",
    "gpu_uuid": "",
    "gpu_name": "",
    "timestamp": "",
}


class SmiError(Exception):
    """A command that is not served. ``code``: exit status."""

    def __init__(self, text: str, code: int = _USAGE) -> None:
        super().__init__(text)
        self.code = code


def main(argv: Sequence[str], environment: dict[str, str] | None = None) -> int:
    """Run one command; return its exit status."""
    values = dict(os.environ) if environment is None else environment
    try:
        return _run(list(argv), values)
    except SmiError as error:
        print(error)
        return error.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0


def _run(argv: list[str], environment: dict[str, str]) -> int:
    if argv and argv[0] in ("-h", "--help"):
        print(_HELP, end="")
        return 0
    gpus = read_gpus(environment)
    words, options = _parsed(argv)
    if chosen := options.get("-i") or options.get("--id"):
        gpus = _chosen(gpus, chosen)
    if not gpus:
        print("No devices were found")
        return _NO_DEVICES
    show = _command(words, options, gpus)
    every = options.get("-l") or options.get("--loop") or options.get("-lms") or ""
    if not every:
        show()
        return 0
    seconds = _number(every) / (1000 if "-lms" in options else 1)
    while True:
        show()
        sys.stdout.flush()
        _pause(seconds)


def read_gpus(environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return the GPUs of this container, numbered as its processes see them."""
    path = environment.get(VARIABLE)
    if not path:
        return []
    try:
        with open(path, encoding="utf-8") as stream:
            record = json.load(stream)
    except (OSError, ValueError) as error:
        raise SmiError(f"the record of this container's GPUs cannot be read: {error}", 255) from error
    gpus = record["gpus"]
    return [{**gpu, "index": position, "count": len(gpus)} for position, gpu in enumerate(gpus)]


def _parsed(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return words and options; an option's value follows ``=`` or as the next word."""
    with_value = ("-i", "--id", "-l", "--loop", "-lms", "-s", "-c", "-d", "--format", "-f", "-o")
    words: list[str] = []
    options: dict[str, str] = {}
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            words.append(word)
        elif equals:
            options[name] = value
        elif word in with_value or word.startswith("--query-"):
            value = next(rest, "")
            if not value and word == "-l":
                value = "5"
            options[word] = value
        else:
            options[word] = ""
    return words, options


def _command(words: list[str], options: dict[str, str], gpus: list[dict[str, Any]]) -> Callable[[], None]:
    served = {
        "-i",
        "--id",
        "-l",
        "--loop",
        "-lms",
        "--format",
        "-L",
        "--list-gpus",
        "-q",
        "--query",
        "-s",
        "-c",
    }
    served |= {"-d", "-m", "--matrix", "--query-gpu", "--query-compute-apps", "-o"}
    unknown = sorted(set(options) - served)
    if words[:1] == ["dmon"]:
        return lambda: _dmon(options, gpus)
    if words[:1] == ["pmon"]:
        return lambda: _pmon(options, gpus)
    if words[:1] == ["topo"]:
        return lambda: _topology(gpus)
    if words or unknown:
        wrong = unknown[0] if unknown else words[0]
        raise SmiError(
            f"{wrong} is not supported for simulated GPUs: nvidia-smi --help lists what is", _UNSUPPORTED
        )
    if "-L" in options or "--list-gpus" in options:
        return lambda: _list(gpus)
    if "--query-gpu" in options:
        return _query(options["--query-gpu"], options.get("--format", ""), gpus)
    if "--query-compute-apps" in options:
        return _query_apps(options["--query-compute-apps"], options.get("--format", ""), gpus)
    if "-q" in options or "--query" in options:
        return lambda: _describe(gpus)
    return lambda: _table(gpus)


def _chosen(gpus: list[dict[str, Any]], chosen: str) -> list[dict[str, Any]]:
    wanted = [word.strip() for word in chosen.split(",")]
    found = [gpu for gpu in gpus if str(gpu["index"]) in wanted or gpu["uuid"] in wanted]
    if not found:
        raise SmiError("No devices were found", _NO_DEVICES)
    return found


def _list(gpus: list[dict[str, Any]]) -> None:
    _note()
    for gpu in gpus:
        print(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
        if gpu["profile"]:
            print(f"  MIG {gpu['profile']:<12} Device  0: (UUID: {gpu['identifier']})")


def _query(fields: str, form: str, gpus: list[dict[str, Any]]) -> Callable[[], None]:
    names = [name.strip() for name in fields.split(",") if name.strip()]
    for name in names:
        if name not in _FIELDS and not name.startswith(_SENSORS):
            raise SmiError(f'Field "{name}" is not a valid field to query.')
    units = [_FIELDS.get(name, ("", None))[0] for name in names]

    def show() -> None:
        rows = [[_FIELDS[n][1](gpu) if n in _FIELDS else "[N/A]" for n in names] for gpu in gpus]
        _csv(names, units, rows, form)

    _format(form)
    return show


def _query_apps(fields: str, form: str, gpus: list[dict[str, Any]]) -> Callable[[], None]:
    names = [name.strip() for name in fields.split(",") if name.strip()]
    for name in names:
        if name not in _APPS:
            raise SmiError(f'Field "{name}" is not a valid field to query.')
    _format(form)

    def show() -> None:
        rows = []
        for gpu in gpus:
            for process in _processes(gpu):
                values = {
                    "pid": process["pid"],
                    "process_name": process["name"],
                    "name": process["name"],
                    "used_memory": process["memory"],
                    "used_gpu_memory": process["memory"],
                    "gpu_uuid": gpu["uuid"],
                    "gpu_name": gpu["name"],
                    "timestamp": _now("%Y/%m/%d %H:%M:%S.000"),
                }
                rows.append([values[name] for name in names])
        _csv(names, [_APPS[name] for name in names], rows, form)

    return show


def _format(form: str) -> list[str]:
    parts = [part.strip() for part in form.split(",") if part.strip()]
    if "csv" not in parts or set(parts) - {"csv", "noheader", "nounits"}:
        raise SmiError(
            '"--format=" switch is missing or not csv. Only "csv[,noheader][,nounits]" is supported.'
        )
    return parts


def _csv(names: list[str], units: list[str], rows: list[list[object]], form: str) -> None:
    parts = _format(form)
    _note()
    if "noheader" not in parts:
        print(
            ", ".join(f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True))
        )
    for row in rows:
        shown = [
            f"{value} {unit}" if unit and "nounits" not in parts else f"{value}"
            for value, unit in zip(row, units, strict=True)
        ]
        print(", ".join(shown))


def _describe(gpus: list[dict[str, Any]]) -> None:
    print("\n==============NVSMI LOG==============\n")
    print(f"{'Timestamp':<45}: {_now('%a %b %d %H:%M:%S %Y')}")
    print(f"{'Driver Version':<45}: {DRIVER}")
    print(f"{'CUDA Version':<45}: {CUDA}")
    print(f"{'Attached GPUs':<45}: {len(gpus)}")
    for gpu in gpus:
        print(f"GPU {gpu['index']} (simulated)")
        for name, value in (
            ("Product Name", gpu["name"]),
            ("GPU UUID", gpu["uuid"]),
            ("MIG Mode Current", "Enabled" if gpu["mig"] else "Disabled"),
            ("FB Memory Total", f"{gpu['memory_mib']} MiB"),
            ("FB Memory Used", f"{gpu['used_mib']} MiB"),
            ("FB Memory Free", f"{gpu['memory_mib'] - gpu['used_mib']} MiB"),
            ("Utilization Gpu", "0 %"),
            ("Held by this container", gpu["held"]),
        ):
            print(f"    {name:<41}: {value}")


def _table(gpus: list[dict[str, Any]]) -> None:
    rule = "+" + "-" * _WIDTH + "+"
    print(_now("%a %b %d %H:%M:%S %Y"))
    print(rule)
    _row("NVIDIA-SMI of windlass: SIMULATED GPUs".ljust(46) + f"CUDA Version: {CUDA}")
    print("|" + "-" * 35 + "+" + "-" * 23 + "+" + "-" * 17 + "|")
    _cells("GPU  Name", "Memory-Usage", "Util     MIG M.")
    print("|" + "=" * 35 + "+" + "=" * 23 + "+" + "=" * 17 + "|")
    for gpu in gpus:
        memory = f"{gpu['used_mib']}MiB / {gpu['memory_mib']}MiB"
        mig = "Enabled" if gpu["mig"] else "Disabled"
        _cells(f"{gpu['index']:>3}  {gpu['name']}", memory, f"0%  {mig}")
        if not gpu["whole"]:
            _cells(f"     {gpu['held']}", "", "")
        print("+" + "-" * 35 + "+" + "-" * 23 + "+" + "-" * 17 + "+")
    print()
    print(rule)
    _row("Processes:")
    _row(" GPU          PID   Type   Process name                          GPU Memory")
    print("|" + "=" * _WIDTH + "|")
    found = [(gpu, process) for gpu in gpus for process in _processes(gpu)]
    for gpu, process in found:
        name = process["name"][-36:]
        _row(f" {gpu['index']:>3}   {process['pid']:>10}      C   {name:<36} {process['memory']:>7}MiB")
    if not found:
        _row(" No running processes found")
    print(rule)


def _row(text: str) -> None:
    print(f"| {text[: _WIDTH - 2]:<{_WIDTH - 2}} |")


def _cells(first: str, second: str, third: str) -> None:
    print(f"| {first[:33]:<33} | {second:>21} | {third:>15} |")


def _dmon(options: dict[str, str], gpus: list[dict[str, Any]]) -> None:
    """Print samples as ``dmon`` does. A simulated GPU has no sensors, and its utilisation is 0."""
    groups = {
        "p": (("pwr", "W", "-"), ("gtemp", "C", "-"), ("mtemp", "C", "-")),
        "u": tuple((name, "%", "0") for name in ("sm", "mem", "enc", "dec", "jpg", "ofa")),
        "c": (("mclk", "MHz", "-"), ("pclk", "MHz", "-")),
        "m": (("fb", "MB", ""), ("bar1", "MB", "0"), ("ccpm", "MB", "0")),
    }
    chosen = options.get("-s") or "puc"
    unknown = sorted(set(chosen) - set(groups))
    if unknown:
        raise SmiError(
            f"dmon: metric {unknown[0]} is not supported for simulated GPUs: use {''.join(groups)}"
        )
    columns = [column for letter in chosen for column in groups[letter]]
    count = int(_number(options.get("-c") or "0"))
    seconds = _number(options.get("-d") or "1")
    _note()
    print("# gpu " + " ".join(f"{name:>6}" for name, _, _ in columns))
    print("# Idx " + " ".join(f"{unit:>6}" for _, unit, _ in columns))
    sample = 0
    while True:
        for gpu in gpus:
            values = [value or str(gpu["used_mib"]) for _, _, value in columns]
            print(f"{gpu['index']:>5} " + " ".join(f"{value:>6}" for value in values), flush=True)
        sample += 1
        if sample == count:
            return
        _pause(seconds)


def _pmon(options: dict[str, str], gpus: list[dict[str, Any]]) -> None:
    count = int(_number(options.get("-c") or "0"))
    _note()
    print("# gpu         pid   type     sm    mem    enc    dec    command")
    print("# Idx           #    C/G      %      %      %      %    name")
    sample = 0
    while True:
        for gpu in gpus:
            for process in _processes(gpu) or [{"pid": "-", "name": "-"}]:
                name = os.path.basename(process["name"])
                print(
                    f"{gpu['index']:>5} {process['pid']:>11}      C      0      0      0      0    {name}",
                    flush=True,
                )
        sample += 1
        if sample == count:
            return
        _pause(1)


def _topology(gpus: list[dict[str, Any]]) -> None:
    _note()
    print("\t" + "\t".join(f"GPU{gpu['index']}" for gpu in gpus))
    for gpu in gpus:
        cells = [
            "X"
            if other is gpu
            else "NV"
            if gpu["link_group"] >= 0 and gpu["link_group"] == other["link_group"]
            else "SYS"
            for other in gpus
        ]
        print(f"GPU{gpu['index']}\t" + "\t".join(cells))


def _processes(gpu: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the main process of this container, as its processes see it, if it counts as using the GPU."""
    if not gpu["used_mib"]:
        return []
    mark = os.environ.get("WINDLASS_ATTEMPT", "")
    for entry in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{entry}/environ", "rb") as stream:
                own = f"WINDLASS_ATTEMPT={mark}".encode() in stream.read().split(b"\0")
            with open(f"/proc/{entry}/cmdline", "rb") as stream:
                command = stream.read().split(b"\0")[0].decode(errors="replace")
        except OSError:
            continue
        if own and mark and entry != os.getpid():
            return [{"pid": entry, "name": command, "memory": gpu["used_mib"]}]
    return []


def _note() -> None:
    print(NOTE, file=sys.stderr, flush=True)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SmiError(f'"{text}" is not a number') from None


def _now(form: str) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(monotonic.now_ns() / 1e9).strftime(form)


def _pause(seconds: float) -> None:
    monotonic.pause(seconds)
