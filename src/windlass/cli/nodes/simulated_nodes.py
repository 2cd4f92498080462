"""Node objects for simulated nodes, from the command line.

The node agent simulates their pods.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from windlass.api import annotations as names
from windlass.api import quantities
from windlass.api.devices import node_annotation, numa_annotations
from windlass.api.devices.models import AcceleratorModel, find_model
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.api.errors import WindlassError
from windlass.api.nodes.simulated import node_object
from windlass.node.devices import labels
from windlass.node.devices.simulated import SimulationError, simulated_devices
from windlass.node.kubelet_flags import KubeletFlags

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_UNKNOWN_MEMORY_MIB = 81_920


@dataclass(frozen=True, slots=True)
class SimulatedNodeShape:
    """Resources of each simulated node."""

    gpus: int = 8
    cpu: str = "64"
    memory: str = "256Gi"
    product: str = "Simulated-GPU"
    devices: str = ""
    """List of devices, ``4xA100-40GB+mig,1xT4``.

    If set, ``gpus`` and ``product`` are ignored.
    """
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    resources: dict[str, str] = field(default_factory=dict)
    zones: int = 0
    """Number of NUMA nodes that divide CPUs, memory and devices evenly; 0: no NUMA information.
    """
    policy: str = "none"
    """Policy of the Topology Manager."""
    scope: str = "container"
    kubelet: KubeletFlags | None = None
    """Flags of the kubelet: reserved resources, number of pods and NUMA policy."""


def node_of(name: str, shape: SimulatedNodeShape) -> dict[str, Any]:
    """Return the Node, ready and with allocatable resources.

    Raises :class:`WindlassError` for invalid amounts.
    """
    for resource, amount in {"cpu": shape.cpu, "memory": shape.memory, **shape.resources}.items():
        _check(resource, amount)
    device_list = shape.devices or (str(shape.gpus) if shape.zones and shape.gpus else "")
    listed = _with_numa(_devices(name, device_list), shape.zones) if device_list else ()
    amounts = {resource: str(count) for resource, count in labels.resources(listed).items()}
    model = find_model(shape.product) or AcceleratorModel(shape.product, _UNKNOWN_MEMORY_MIB)
    same = [
        DeviceRecord(
            i, model=shape.product.replace(" ", "-"), memory_mib=model.memory_mib, compute=model.compute
        )
        for i in range(shape.gpus)
    ]
    node = node_object(
        name,
        cpu=shape.cpu,
        memory=shape.memory,
        gpus=0 if listed else shape.gpus,
        product=shape.product,
        gpu_memory_mib=model.memory_mib,
        labels={**labels.aliases(listed), **labels.simulated_labels(listed or same), **shape.labels},
        taints=shape.taints,
        resources={**amounts, **shape.resources},
    )
    if shape.kubelet is not None:
        _reserve(node, shape)
    notes = names.both(names.NODE_DEVICES, node_annotation.write(listed)) if listed else {}
    notes |= {key: text for key, text in labels.summary_annotations(listed or same).items() if text}
    if shape.zones:
        notes[numa_annotations.NUMA] = numa_annotations.write(_record(shape))
    if notes:
        node["metadata"]["annotations"] = notes
    return node


def _reserve(node: dict[str, Any], shape: SimulatedNodeShape) -> None:
    """Take off the allocatable resources what the flags of the kubelet reserve."""
    flags = shape.kubelet
    assert flags is not None
    status = node["status"]
    if flags.max_pods:
        status["capacity"]["pods"] = status["allocatable"]["pods"] = str(flags.max_pods)
    memory = quantities.to_units("memory", shape.memory)
    for name, units in flags.reserved_on(memory).items():
        left = quantities.to_units(name, status["capacity"][name]) - units
        if left < 0:
            raise WindlassError(
                "WL-USE-400",
                f"the kubelet flags reserve {quantities.from_units(name, units)} of {name}, but the nodes have "
                f"{status['capacity'][name]}",
                remedies=(f"--{name} {quantities.from_units(name, 2 * units)}",)
                if name in ("cpu", "memory")
                else (),
            )
        status["allocatable"][name] = quantities.from_units(name, left)


def _with_numa(
    listed: tuple[node_annotation.DeviceRecord, ...], count: int
) -> tuple[node_annotation.DeviceRecord, ...]:
    """Return the devices with their NUMA nodes: the same number in each, in order."""
    if not count:
        return listed
    return tuple(replace(device, numa=number * count // len(listed)) for number, device in enumerate(listed))


def _record(shape: SimulatedNodeShape) -> numa_annotations.NumaNodeRecord:
    cpus = quantities.to_units("cpu", shape.cpu) // 1000
    memory = quantities.to_units("memory", shape.memory)
    if cpus < shape.zones:
        raise WindlassError(
            "WL-USE-400",
            f"--zones {shape.zones} needs at least {shape.zones} CPUs, but the nodes have {cpus}",
            remedies=(f"--zones {cpus}", f"--cpu {shape.zones}"),
        )
    bounds = [position * cpus // shape.zones for position in range(shape.zones + 1)]
    return numa_annotations.NumaNodeRecord(
        tuple(
            numa_annotations.NumaZoneRecord(
                number,
                numa_annotations.cpu_text(range(bounds[number], bounds[number + 1])),
                memory // shape.zones,
                tuple(10 if other == number else 21 for other in range(shape.zones)),
            )
            for number in range(shape.zones)
        ),
        *_numa_policy(shape),
    )


def _numa_policy(shape: SimulatedNodeShape) -> tuple[str, str]:
    """Return policy and scope of the Topology Manager: its own options, else the flags of the kubelet."""
    flags = shape.kubelet
    if flags is None or (shape.policy, shape.scope) != ("none", "container"):
        return shape.policy, shape.scope
    return flags.topology_manager_policy, flags.topology_manager_scope


def _devices(name: str, device_list: str) -> tuple[node_annotation.DeviceRecord, ...]:
    try:
        return simulated_devices(f"simulated:{device_list}", name)
    except SimulationError as error:
        raise WindlassError(
            "WL-USE-400",
            f"--devices {device_list!r}: {str(error).replace('simulated:', '')}",
            remedies=("--devices 8xH100-80GB", "--devices 2xA100-40GB+mig", "--devices 2xMODEL:24GiB"),
        ) from error


def _check(name: str, amount: str) -> None:
    try:
        units = quantities.to_units(name, amount)
    except quantities.QuantityError as error:
        raise WindlassError("WL-USE-400", f"{name}={amount}: {error}") from error
    if units < 0:
        raise WindlassError("WL-USE-400", f"{name}={amount} is negative")


def parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise WindlassError("WL-USE-400", f"--label {text!r} is not KEY=VALUE", remedies=("--label zone=a",))
    return key, value


def parse_resource(text: str) -> tuple[str, str]:
    name, equals, amount = text.partition("=")
    if not equals or not name or not amount:
        raise WindlassError(
            "WL-USE-400", f"--resource {text!r} is not NAME=AMOUNT", remedies=("--resource rdma/roce_v2=1",)
        )
    return name, amount


def parse_taint(text: str) -> dict[str, str]:
    """Return the taint for ``key=value:Effect`` or ``key:Effect``."""
    match = re.fullmatch(r"([^=:]+)(?:=([^:]*))?:(\w+)", text)
    if match is None or match[3] not in _EFFECTS:
        raise WindlassError(
            "WL-USE-400",
            f"--taint {text!r} is not KEY=VALUE:EFFECT",
            evidence=f"effects: {', '.join(_EFFECTS)}",
            remedies=("--taint dedicated=gpu:NoSchedule",),
        )
    taint = {"key": match[1], "effect": match[3]}
    return taint | {"value": match[2]} if match[2] else taint
