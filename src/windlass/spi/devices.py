"""Accelerator cards and parts of them: what a pod asks for, and what a policy sees of the cards.

A *card* is one accelerator of a node. A pod may have it whole, as a *share* (an amount of its compute and
of its memory, beside other pods) or as a *slice* (an isolated MIG instance at a place on the card). A card
is never both: it is free, held whole, shared or sliced. Compute is counted in thousandths of a card
(``milli``), memory in MiB.

Plain whole cards without wishes are not spoken of here: they stand in ``Needs.request`` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from windlass.api.devices.mig_profiles import SliceProfile as SliceProfile
from windlass.api.devices.mig_profiles import profiles_of as profiles_of

if TYPE_CHECKING:
    from windlass.spi.arrays import BoolArray, IntArray
    from windlass.spi.objects import Needs

Draws = tuple[tuple[str, int, int], ...]
"""What is taken of things that are counted by name: name, units, how many there are in all."""


class DeviceMode(StrEnum):
    """How a card may be handed out.

    * ``PLAIN``: whole or in shares.
    * ``WHOLE``: whole only: a device plug-in has made it of a part of a card (time-sliced, by MPS, a MIG slice).
    * ``SLICED``: it is in MIG mode and stays so: only in slices. It counts for nothing in its resource.
    * ``EITHER``: whole, in shares or in slices; whoever runs the node switches MIG mode while it is free.
    * ``NAMED``: whole, and only to who names it (:class:`JointDeviceNeed`, or by UUID): a part of a device that the
    node
      lists, too, or one that is tainted. It counts for nothing in its resource.
    """

    PLAIN = ""
    WHOLE = "whole"
    SLICED = "sliced"
    EITHER = "either"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class DeviceNeed:
    """What a pod asks of each of ``count`` distinct cards of one node.

    * ``resource``: whose cards (``nvidia.com/gpu``, ``amd.com/gpu``, …); empty: of any.
    * ``milli``: of each card's compute, 1…1000; 1000 is the whole card; 0: no claim on compute.
    * ``memory_mib``: of each card's memory; 0: follows ``memory_milli``, a share of it, rounded down.
    * ``profile``: a MIG profile (``1g.10gb``, ``1g.10gb+me``); then no amount is set.
    * ``slices``: a claim on memory may be served by a slice, the smallest that has as much;
      ``shares``: or by a share.
    * ``models``: any of these, as a part of the model's name, whatever the case; ``models_not``: none of
      these. ``uuids``: any of these, exactly; ``uuids_not``: none of these, and they win.
    * ``min_memory_mib``, ``min_compute``: what the card has at least in all, its CUDA compute capability.
    * ``carries``, ``avoids``: tokens; a card never holds two pods of which one carries what the other avoids.
    * ``listed``: a resource that stands for one such part on nodes that have any of it in their allocatable
      amounts (``nvidia.com/mig-1g.10gb`` under static partitioning): there it is counted like any amount,
      and no card is chosen.
    * ``pack``: among cards that do, the fullest (True), the emptiest (False), as policies say (None).
    * ``draws``: what a part of a card takes that is shared by claims (:attr:`~windlass.spi.objects.Device.shared`).
    * ``joint``: the cards are what claims ask for together; then ``count`` is the least number of them, and nothing
      else is set.
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
    draws: Draws = ()
    joint: JointDeviceNeed | None = None

    @property
    def by_name(self) -> bool:
        """Whether it depends on more of a card than its kind says."""
        return bool(self.uuids or self.uuids_not or self.joint)

    @property
    def whole(self) -> bool:
        """Whether it is whole cards that are asked for."""
        return self.milli >= 1000 and not self.profile


@dataclass(frozen=True)
class DeviceOption:
    """One way to serve a request of a claim: ``need.count`` whole cards of that kind, or (``every``) all of them that
    the node has, at least one. ``admin``: to look after them, whoever has them, without having them. ``parts``: of
    cards that are shared, by UUID, what each would have to give, in the order of these names."""

    need: DeviceNeed
    every: bool = False
    admin: bool = False
    parts: tuple[tuple[str, Draws], ...] = ()

    @cached_property
    def part_by_card(self) -> dict[str, Draws]:
        return dict(self.parts)


@dataclass(frozen=True)
class DeviceRule:
    """Whole cards of one claim agree on ``attribute`` or (``distinct``) differ in it; who lacks it is not among them.

    ``options``: request and option of those that it holds for. ``values``: by UUID, or by :func:`kind_key`, in the
    order of these names."""

    claim: int
    options: tuple[tuple[int, int], ...]
    distinct: bool
    attribute: str
    values: tuple[tuple[str, str], ...]

    @cached_property
    def by_card(self) -> dict[str, str]:
        return dict(self.values)


@dataclass(frozen=True)
class JointDeviceNeed:
    """What the claims of a pod ask of one node: by claim, by request, the options in order of preference, and the
    rules that tie devices of a claim together (:mod:`windlass.engine.devices.dra_allocator`)."""

    claims: tuple[tuple[tuple[DeviceOption, ...], ...], ...]
    rules: tuple[DeviceRule, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.claims, self.rules))


def kind_key(resource: str, model: str, memory_mib: int, compute: tuple[int, int]) -> str:
    """What cards of one kind are called in the rules of claims, where nobody lists them one by one."""
    return f"{resource}|{model}|{memory_mib}|{compute[0]}.{compute[1]}"


class DeviceView(Protocol):
    """The cards of the nodes of a view, as they are for new work now (or, in a view of the future, will
    be). Arrays are nodes × slots; ``exists`` is false where a node has fewer cards. Read-only.
    """

    @property
    def exists(self) -> BoolArray: ...

    @property
    def index(self) -> IntArray:
        """What ``windlass.dev/devices`` calls the card, among those of its resource."""
        ...

    @property
    def resource(self) -> IntArray:
        """Codes into ``resources``."""
        ...

    @property
    def resources(self) -> Sequence[str]: ...

    @property
    def model(self) -> IntArray:
        """Codes into ``models``; 0 where it is not known."""
        ...

    @property
    def models(self) -> Sequence[str]: ...

    @property
    def healthy(self) -> BoolArray: ...

    @property
    def memory_mib(self) -> IntArray:
        """What the card has in all; 0 where it is not known."""
        ...

    @property
    def numa(self) -> IntArray:
        """-1 where it is not known."""
        ...

    @property
    def link_group(self) -> IntArray:
        """Cards of one number are joined by fast links; -1 where it is not known."""
        ...

    @property
    def free_milli(self) -> IntArray:
        """Compute that is left; 0 on a card that is held whole or sliced, or not healthy."""
        ...

    @property
    def free_mib(self) -> IntArray:
        """Memory that is left, by the same rule; of a sliced card what its free memory slices stand for."""
        ...

    @property
    def sharers(self) -> IntArray:
        """How many pods share or slice the card."""
        ...


@runtime_checkable
class DeviceChoice(Protocol):
    """A policy that chooses among the cards of a node. Asked once per need of a pod, after its node is known;
    also asked of cards that are imagined to be fuller, to count how many pods a node takes.

    Not asked where the need's own ``pack`` says it. Else a higher sum of what the policies say, times their
    weights, is better; then the fullest card; then the lowest index. ``None``: no opinion. The answer may
    depend on nothing but the arguments. A plugin with an attribute ``dialects`` is asked for pods of these
    alone.
    """

    name: str
    weight: float

    def prefer(
        self, needs: Needs, need: DeviceNeed, cards: Sequence[CandidateDevice]
    ) -> Sequence[float] | None:
        """One number per card: a card never gets less by getting fuller while it still takes the pod, if
        ``needs`` are placed by counting."""
        ...


@dataclass(frozen=True, slots=True)
class CandidateDevice:
    """One card that takes the pod, as it would be without it."""

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
    """The profile of the slice that would be carved; empty for a share or a whole card."""
    keeps: tuple[tuple[str, int], ...] = ()
    """By profile, how many more slices it would still hold afterwards."""
