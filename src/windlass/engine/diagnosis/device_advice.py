"""Advice for requests of devices that no node has.

It uses the kinds of devices of the matching nodes, independent of allocations.
Invariant: every advised value exists on a device of these nodes.
"""

from __future__ import annotations

from windlass.engine.devices.need_on_device import needs_on_device
from windlass.engine.devices.share_table import DeviceFacts, DeviceSet
from windlass.engine.diagnosis.device_messages import describe_need
from windlass.engine.diagnosis.node_diagnosis import NodeDiagnosis
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.devices import DeviceNeed
from windlass.spi.model_names import names_any

_MAX_NAMED = 8


def advice_on_devices(diagnosis: NodeDiagnosis, state: ClusterState) -> list[str]:
    """Return one or two sentences for each need that no matching node could serve, even if free."""
    needs = diagnosis.cls.needs.devices
    if not needs:
        return []
    share_table = state.table.shares
    codes = sorted({code for code in share_table.device_set_of[diagnosis.matching].tolist() if code >= 0})
    device_sets = [share_table.device_sets[code] for code in codes]
    advice: list[str] = []
    for need in needs:
        if not need.by_name and not any(_can_serve(need, device_set) for device_set in device_sets):
            advice += _advice(
                need, [facts for device_set in device_sets for facts in device_set.devices if facts.usable]
            )
            advice.append(f"Add a node with {describe_need(need)}.")
    return advice


def _can_serve(need: DeviceNeed, device_set: DeviceSet) -> bool:
    return len(needs_on_device(need, device_set, ("",) * len(device_set.devices))) >= need.count


def _advice(need: DeviceNeed, devices: list[DeviceFacts]) -> list[str]:
    """Return advice on the first property of the need that no device has."""
    devices = [facts for facts in devices if not need.resource or facts.device.resource == need.resource]
    if not devices:
        return [f"No matching node has a device of {need.resource}."] if need.resource else []
    models = sorted({facts.device.model for facts in devices if facts.device.model})
    if need.models:
        devices = [facts for facts in devices if names_any(need.models, facts.device.model)]
        if not devices:
            return [f"Name a model that nodes have: {_join_names(models)}."] if models else []
    if need.profile:
        profiles = {
            p.name: p.memory_mib for facts in devices if facts.geometry for p in facts.geometry.profiles
        }
        if not profiles:
            return ["No GPU of these nodes is sliced: request a share of one, or a whole one."]
        if need.profile in profiles:
            return []
        return [
            f"Ask for a slice that their GPUs have: {_join_names(sorted(profiles, key=lambda n: (profiles[n], n)))}."
        ]
    largest = max(facts.device.memory_mib for facts in devices)
    if max(need.memory_mib, need.min_memory_mib) > largest > 0:
        return [f"Ask for at most {largest} MiB of a GPU's memory."]
    compute = max(facts.device.compute for facts in devices)
    if need.min_compute > compute > (0, 0):
        return [f"Ask for compute capability {compute[0]}.{compute[1]} at most."]
    return []


def _join_names(names: list[str]) -> str:
    further = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + further
