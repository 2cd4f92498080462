"""Names of resources that a node can have, as opposed to names that only a quota or a container uses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from windlass.api.devices.resource_names import HAMI, VOLCANO_VGPU, ResourceVocabulary, is_ascend_part

_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")
_NATIVE_PREFIXES = ("hugepages-", "attachable-volumes-")
_QUOTA_PREFIXES = ("requests.", "limits.", "count/")
_STORAGE_CLASS = ".storageclass.storage.k8s.io"


def _parts(family: ResourceVocabulary) -> frozenset[str]:
    return frozenset((family.memory, family.percentage, *family.cores))


_DEVICE_PARTS = {family.number: _parts(family) for family in (VOLCANO_VGPU, HAMI)}
"""Memory and compute of one GPU, by the resource that counts the containers on GPUs.

Device plugins report these parts in annotations, not as resources of the node.
"""


@lru_cache(maxsize=1024)
def is_node_resource(name: str) -> bool:
    """Return whether a node can have the resource ``name``.

    Quotas also count ``requests.cpu``, ``limits.memory``, ``count/pods``, ``services`` and
    ``gold.storageclass.storage.k8s.io/requests.storage``. No node ever has those, nor a part
    of one device such as ``nvidia.com/gpucores``.
    """
    if name.startswith(_QUOTA_PREFIXES) or is_ascend_part(name):
        return False
    prefix, slash, _ = name.partition("/")
    if slash:
        part = any(name in parts for parts in _DEVICE_PARTS.values())
        return not part and not prefix.endswith(_STORAGE_CLASS)
    return name in _NATIVE or name.startswith(_NATIVE_PREFIXES)


def node_resources(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts above 0 of resources that a node can have.

    With parts of devices the number of devices is left out: several pods share each device,
    so it is no amount of a node.
    """
    shared = {number for number, parts in _DEVICE_PARTS.items() if not parts.isdisjoint(amounts)}
    return {
        name: units
        for name, units in amounts.items()
        if units > 0 and name not in shared and is_node_resource(name)
    }
