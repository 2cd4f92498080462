"""Devices (accelerators) and shares of them: requests of pods, and views for policies.

A *device* is one accelerator of a node. A pod may have a whole device, a *share* (an
amount of its compute and memory, next to other pods) or a *slice* (an isolated MIG
instance at a fixed place). A device is in one state only: free, held whole, shared, or
sliced. Compute is counted in thousandths of a device (``milli``), memory in MiB.

Plain whole devices without further conditions do not occur here. They are in
``Needs.request`` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from windlass.api.devices.mig_profiles import SliceProfile as SliceProfile
from windlass.api.devices.mig_profiles import profiles_of as profiles_of
from windlass.spi import renamed

if TYPE_CHECKING:
    from windlass.spi.arrays import BoolArray, IntArray
    from windlass.spi.objects import Needs
else:
    __getattr__ = renamed.old_names(__name__)

ConsumedCounters = tuple[tuple[str, int, int], ...]
"""Consumption of named counters: name, consumed units, units in all."""


class DeviceMode(StrEnum):
    """Ways in which a device may be allocated.

    * ``PLAIN``: whole or in shares.
    * ``WHOLE``: whole only. A device plugin made it from a part of a device
      (time-slicing, MPS, a MIG slice).
    * ``SLICED``: in slices only. It is in MIG mode and stays so. It does not count in
      its resource.
    * ``EITHER``: whole, in shares or in slices. The node agent switches MIG mode while
      the device is free.
    * ``NAMED``: whole, and only for a pod that names it (:class:`JointDeviceNeed`, or by
      UUID). It is a part of a device that the node also lists, or it is tainted. It does
      not count in its resource.
    """

    PLAIN = ""
    WHOLE = "whole"
    SLICED = "sliced"
    EITHER = "either"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class DeviceNeed:
    """Request of a pod for each of ``count`` distinct devices of one node.

    * ``resource``: resource of the devices (``nvidia.com/gpu``, ``amd.com/gpu``, …);
      empty for any.
    * ``milli``: compute of each device, 1…1000. 1000 is the whole device, 0 no claim on
      compute.
    * ``memory_mib``: memory of each device. 0: it follows from ``memory_milli``, a part
      of the device's memory, rounded down.
    * ``profile``: a MIG profile (``1g.10gb``, ``1g.10gb+me``). No amount is set then.
    * ``slices``: a slice may serve a request for memory, the smallest that is large
      enough. ``shares``: a share may serve it.
    * ``models``: any of these, as a part of the model name in any case or by its words
      (:mod:`windlass.spi.model_names`). ``models_not``: none of these.
    * ``uuids``: any of these, exactly. ``uuids_not``: none of these; this takes
      precedence.
    * ``min_memory_mib``, ``min_compute``: minimum memory and CUDA compute capability of
      the device.
    * ``carries``, ``avoids``: tokens. A device never holds two pods of which one carries
      a token that the other avoids.
    * ``listed``: a resource that stands for one such share. Nodes with an allocatable
      amount of it (``nvidia.com/mig-1g.10gb`` with static partitioning) count it like any
      amount, and no device is chosen.
    * ``pack``: among suitable devices the fullest (True), the emptiest (False), or as
      policies decide (None).
    * ``draws``: counters that a share consumes on a device which is shared by claims
      (:attr:`~windlass.spi.objects.Device.shared`).
    * ``joint``: devices that resource claims request together. ``count`` is then their
      minimum number, and nothing else is set.
    """

    resource: str
    count: int = 1
    milli: int = 0
    memory_mib: int = 0
    memory_milli: int = 0
    profile: str = ""
    slices: bool = True
    shares: bool = True
    models: tuple[str, ...] = ()
    models_not: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    uuids_not: tuple[str, ...] = ()
    min_memory_mib: int = 0
    min_compute: tuple[int, int] = (0, 0)
    carries: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    pack: bool | None = None
    listed: str = ""
    draws: ConsumedCounters = ()
    joint: JointDeviceNeed | None = None

    @property
    def by_name(self) -> bool:
        """True if it depends on more of a device than its kind."""
        return bool(self.uuids or self.uuids_not or self.joint)

    @property
    def whole(self) -> bool:
        """True if it requests whole devices."""
        return self.milli >= 1000 and not self.profile


@renamed.attributes
@dataclass(frozen=True)
class DeviceOption:
    """One way to serve a request of a resource claim.

    * ``need``: ``need.count`` whole devices of this kind. ``every``: all such devices of
      the node, at least one.
    * ``admin``: access for administration, whichever pod has the devices.
    * ``parts``: counters that each shared device would have to give, by UUID, sorted by
      UUID.
    """

    need: DeviceNeed
    every: bool = False
    admin: bool = False
    parts: tuple[tuple[str, ConsumedCounters], ...] = ()

    @cached_property
    def share_by_device(self) -> dict[str, ConsumedCounters]:
        """``parts`` as a dictionary."""
        return dict(self.parts)


@renamed.attributes
@dataclass(frozen=True)
class DeviceRule:
    """Rule for whole devices of one claim: they agree on ``attribute``.

    If ``distinct``, they differ in it. A device without the attribute is excluded.
    ``options``: request and option to which the rule applies. ``values``: values by UUID
    or by :func:`kind_key`, sorted by it.
    """

    claim: int
    options: tuple[tuple[int, int], ...]
    distinct: bool
    attribute: str
    values: tuple[tuple[str, str], ...]

    @cached_property
    def by_device(self) -> dict[str, str]:
        """``values`` as a dictionary."""
        return dict(self.values)


@dataclass(frozen=True)
class JointDeviceNeed:
    """Requests of all resource claims of a pod to one node.

    ``claims``: by claim and by request, the options in order of preference. ``rules``:
    rules that tie devices of a claim together
    (:mod:`windlass.engine.devices.dra_allocator`).
    """

    claims: tuple[tuple[tuple[DeviceOption, ...], ...], ...]
    rules: tuple[DeviceRule, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.claims, self.rules))


def kind_key(resource: str, model: str, memory_mib: int, compute: tuple[int, int]) -> str:
    """Return the key of one kind of devices in :class:`DeviceRule`, where UUIDs are not listed."""
    return f"{resource}|{model}|{memory_mib}|{compute[0]}.{compute[1]}"


class DeviceView(Protocol):
    """Devices of the nodes of a view, as they are for new pods now.

    In a view of the future, as they will be. Arrays are nodes × slots, and read-only.
    ``exists`` is false where a node has fewer devices.
    """

    @property
    def exists(self) -> BoolArray: ...

    @property
    def index(self) -> IntArray:
        """Index of the device among those of its resource, as in ``windlass.dev/devices``."""
        ...

    @property
    def resource(self) -> IntArray:
        """Codes into ``resources``."""
        ...

    @property
    def resources(self) -> Sequence[str]: ...

    @property
    def model(self) -> IntArray:
        """Codes into ``models``; 0 where the model is not known."""
        ...

    @property
    def models(self) -> Sequence[str]: ...

    @property
    def healthy(self) -> BoolArray: ...

    @property
    def memory_mib(self) -> IntArray:
        """Memory of the device; 0 where it is not known."""
        ...

    @property
    def numa(self) -> IntArray:
        """NUMA zone; -1 where it is not known."""
        ...

    @property
    def link_group(self) -> IntArray:
        """Number shared by devices with fast links among them; -1 where it is not known."""
        ...

    @property
    def free_milli(self) -> IntArray:
        """Free compute; 0 on a device that is held whole, sliced or not healthy."""
        ...

    @property
    def free_mib(self) -> IntArray:
        """Free memory, by the same rule; of a sliced device that of its free memory slices."""
        ...

    @property
    def sharers(self) -> IntArray:
        """Number of pods that share or slice the device."""
        ...


@runtime_checkable
class DeviceChoice(Protocol):
    """Choice among the devices of a node.

    It is called once for each need of a pod, after the node is chosen. It is also called
    for hypothetical, fuller devices, to count how many pods a node can take.

    It is not called if the ``pack`` of the need decides. Otherwise the device with the
    highest weighted sum over all policies is taken, then the fullest device, then the
    lowest index. An answer may depend on the arguments only. A plugin with an attribute
    ``dialects`` is called for pods of these queue APIs only.
    """

    name: str
    weight: float

    def prefer(
        self, needs: Needs, need: DeviceNeed, devices: Sequence[CandidateDevice]
    ) -> Sequence[float] | None:
        """Return one number for each device; ``None`` if the plugin does not apply.

        If ``needs`` are placed by counting, the number of a device never falls as the
        device gets fuller and still fits the pod.
        """
        ...


@renamed.attributes
@dataclass(frozen=True, slots=True)
class CandidateDevice:
    """A device that fits the pod, in the state without the pod."""

    resource: str
    index: int
    model: str
    memory_mib: int
    free_milli: int
    free_mib: int
    sharers: int
    numa: int = -1
    link_group: int = -1
    profile: str = ""
    """Profile of the slice that would be made; empty for a share or a whole device."""
    slices_left: tuple[tuple[str, int], ...] = ()
    """Number of further slices that would still fit afterwards, by profile."""
