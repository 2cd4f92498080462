"""Which accelerators this machine has: by NVML, simulated on request, or none.

A machine without a driver has no GPUs; that is no error. What is found becomes records
(:class:`windlass.api.devices.node_annotation.DeviceRecord`), labels and amounts of the Node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import replace as altered

from windlass.api.devices.models import NVIDIA
from windlass.api.devices.node_annotation import DeviceRecord, SliceInstance
from windlass.node.devices import labels
from windlass.node.devices.index_store import first_free, numbered
from windlass.node.devices.nvml import Nvml, NvmlDevice, link_groups, load, machine_name
from windlass.node.devices.simulated import SIMULATED, SimulationError, simulated_devices

RESOURCE = NVIDIA
AUTO, NONE = "auto", "none"
MIG_AUTO, MIG_DYNAMIC, MIG_MIXED, MIG_SINGLE = "auto", "dynamic", "mixed", "single"
_DISPLAY, _COMPUTE = "0x0300", "0x0302"


class DeviceOptionError(ValueError):
    """The ``--gpus`` option is none of ``auto``, ``none``, ``simulated:…``."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """``cards`` in the order of their indices. ``profiles``: of each device (by UUID) NVML's profile ids."""

    cards: tuple[DeviceRecord, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False
    note: str = ""
    """Why there are none, or what is odd; for ``doctor``."""
    parents: Mapping[str, str] = field(default_factory=dict)
    """Under MIG strategy *single* a slice stands as a device: its UUID → that of the device it is cut from."""

    @property
    def amounts(self) -> dict[str, int]:
        return labels.amounts(self.cards)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The resources of all devices."""
        return tuple(dict.fromkeys(card.resource for card in self.cards))

    def find(self, index: int, resource: str = "") -> DeviceRecord:
        """Raises ``LookupError`` naming the index that this machine does not have.

        Without a resource the first kind of devices is meant.
        """
        kind = resource or (self.cards[0].resource if self.cards else "")
        own = [card for card in self.cards if card.resource == kind]
        for card in own:
            if card.index == index:
                return card
        raise LookupError(f"there is no device {index} on this machine (it has {len(own)})")


def key_of(card: DeviceRecord) -> str:
    """A device's name in the ledger: its index, with the resource before it for other than NVIDIA's."""
    return str(card.index) if card.resource == NVIDIA else f"{card.resource}/{card.index}"


def has_files() -> bool:
    """Return whether this machine seems to have accelerators; cheap, and true when in doubt."""
    return any(
        Path(path).exists()
        for path in ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia/gpus", "/dev/kfd", "/dev/dxg")
    )


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """How MIG devices are handed out, which instances are the agent's own: (device's UUID, profile, start), and
    whether the agent may carve at all. ``mps``: a daemon serves the devices that are not in MIG mode."""

    mig: str = MIG_AUTO
    own: Collection[tuple[str, str, int]] = ()
    may_carve: bool = False
    refused: Collection[str] = ()
    """UUIDs of devices that the driver would not let be carved."""
    mps: bool = False
    numbers: Mapping[str, int] = field(default_factory=dict)
    """UUID → index of the devices that are known already (:mod:`windlass.node.devices.index_store`)."""


def split_option(option: str) -> tuple[str, str]:
    """``auto:mixed`` → (``auto``, ``mixed``): what is found, and how devices in MIG mode are handed out.

    The second is empty where the option does not say. Raises :class:`DeviceOptionError`.
    """
    kind, colon, mig = option.partition(":")
    if kind != AUTO or not colon:
        return option, ""
    if mig not in (MIG_DYNAMIC, MIG_MIXED, MIG_SINGLE):
        raise DeviceOptionError(f"auto:{mig} means nothing: auto:dynamic, auto:mixed or auto:single")
    return AUTO, mig


def open_nvml(loaded: Callable[[], Nvml] = load) -> Nvml | None:
    """NVML, open; None where there is no binding or no driver. Whoever asked closes it."""
    try:
        nvml = loaded()
    except ImportError:
        return None
    try:
        nvml.open()
    except nvml.error:
        return None
    return nvml


def discover(
    option: str, wishes: DiscoveryOptions | None = None, *, machine: str = "", nvml: Nvml | None = None
) -> Inventory:
    """``option``: ``auto``, ``none`` or ``simulated:…``. ``machine``: the node's name, for simulated UUIDs.

    ``nvml``: open already; without one it is opened for this question.
    """
    wishes = wishes or DiscoveryOptions()
    if option == NONE:
        return Inventory(note="GPUs are switched off by option")
    if option.startswith(SIMULATED):
        return _simulated(option, machine)
    if option != AUTO:
        raise DeviceOptionError(f"GPUs must be auto, none or simulated:N, not {option!r}")
    if nvml is not None:
        return _asked(nvml, wishes)
    try:
        nvml = load()
    except ImportError as error:
        return Inventory(note=f"NVML bindings cannot be loaded: {error}")
    try:
        nvml.open()
    except nvml.error as error:
        return Inventory(note=f"no NVIDIA driver answers: {error}")
    try:
        return _asked(nvml, wishes)
    finally:
        nvml.close()


def _asked(nvml: Nvml, wishes: DiscoveryOptions) -> Inventory:
    try:
        return inventory(nvml, wishes)
    except nvml.error as error:
        return Inventory(note=f"the NVIDIA driver refused to list its GPUs: {error}")


def _simulated(option: str, machine: str) -> Inventory:
    try:
        cards = simulated_devices(option, machine)
    except SimulationError as error:
        raise DeviceOptionError(str(error)) from error
    count = len(cards)
    note = f"{count} simulated GPU{'s' if count != 1 else ''}: no GPU is behind them"
    return Inventory(cards, labels.labels(cards), simulated=True, note=note)


def inventory(nvml: Nvml, wishes: DiscoveryOptions) -> Inventory:
    """What an open NVML tells. Raises its error where the driver itself refuses.

    A device that does not answer is listed by what is known of it: its index, and that it is lost.
    """
    facts: list[NvmlDevice] = []
    lost: dict[int, str] = {}
    for index in range(nvml.count()):
        try:
            facts.append(nvml.card(index))
        except nvml.error as error:
            lost[index] = str(error)
    if not facts and not lost:
        return Inventory(note="the NVIDIA driver answers, but it has no GPUs")
    numbers = numbered([card.uuid for card in facts], wishes.numbers)
    facts = [replace(card, index=numbers[card.uuid]) for card in facts]
    lost = _unknown(lost, numbers, wishes.numbers)
    groups = link_groups(facts)
    foreign = frozenset(card.uuid for card in facts if _has_foreign(card, wishes))
    cards = [record(card, groups.get(card.index, -1), wishes, foreign=card.uuid in foreign) for card in facts]
    cards += [
        DeviceRecord(index=index, healthy=False, reason=f"it does not answer: {why}")
        for index, why in lost.items()
    ]
    cards.sort(key=lambda card: card.index)
    single = wishes.mig == MIG_SINGLE and bool(labels.single_profile(cards))
    found = labels.labels(
        cards,
        single=single,
        machine=machine_name(),
        clique=next((card.clique for card in facts if card.clique), ""),
        mode=_mode(facts[0].pci) if facts else "",
        mig_capable=any(card.mig_mode is not None for card in facts),
        engines={name: engines for card in facts for name, engines in card.engines.items()},
    )
    found |= labels.driver_labels(*nvml.driver())
    note = _note(cards, single=single, wishes=wishes)
    if single:
        slices, parents = _as_cards(cards)
        return Inventory(slices, found, note=note, parents=parents)
    return Inventory(tuple(cards), found, note=note)


def _as_cards(cards: Sequence[DeviceRecord]) -> tuple[tuple[DeviceRecord, ...], dict[str, str]]:
    """Each slice as a device of its own, numbered through; and whose slice it is."""
    found: list[DeviceRecord] = []
    parents: dict[str, str] = {}
    for card in cards:
        usable = {place.profile: place.memory_mib for place in card.placements}
        for instance in card.instances:
            if not instance.uuid:
                continue
            parents[instance.uuid] = card.uuid
            found.append(
                altered(
                    card,
                    index=len(found),
                    uuid=instance.uuid,
                    model=f"{card.model}-MIG-{instance.profile}",
                    memory_mib=usable.get(instance.profile, 0),
                    mig=False,
                    dynamic=False,
                    placements=(),
                    instances=(),
                )
            )
    return tuple(found), parents


def _unknown(lost: Mapping[int, str], numbers: Mapping[str, int], known: Mapping[str, int]) -> dict[int, str]:
    """Devices that do not answer and of which nothing is known, with numbers that no other has."""
    missing = sum(uuid not in numbers for uuid in known)
    taken = {*numbers.values(), *known.values()}
    found: dict[int, str] = {}
    for why in list(lost.values())[missing:]:
        number = first_free(taken)
        taken.add(number)
        found[number] = why
    return found


def _has_foreign(card: NvmlDevice, wishes: DiscoveryOptions) -> bool:
    own = set(wishes.own)
    return any((card.uuid, each.profile, each.start) not in own for each in card.instances)


def record(card: NvmlDevice, group: int, wishes: DiscoveryOptions, *, foreign: bool) -> DeviceRecord:
    """What is published of a device."""
    mig = bool(card.mig_mode)
    carved = (
        mig
        and wishes.mig in (MIG_AUTO, MIG_DYNAMIC)
        and wishes.may_carve
        and not foreign
        and card.uuid not in wishes.refused
        and bool(card.placements)
    )
    return DeviceRecord(
        index=card.index,
        uuid=card.uuid,
        model=card.product.replace(" ", "-"),
        memory_mib=card.memory_mib,
        compute=f"{card.compute[0]}.{card.compute[1]}" if card.compute[0] else "",
        numa=card.numa,
        link_group=group,
        pci=card.pci,
        mig=mig,
        dynamic=carved,
        placements=card.placements if mig else (),
        instances=tuple(
            SliceInstance(each.profile, each.start, each.size, each.uuid) for each in card.instances
        ),
        mps=wishes.mps and not mig,
    )


def _note(cards: Sequence[DeviceRecord], *, single: bool, wishes: DiscoveryOptions) -> str:
    notes = []
    products = sorted({card.model for card in cards if card.model})
    if len(products) > 1:
        notes.append(f"GPUs of several kinds ({', '.join(products)}): labels tell the first")
    if wishes.mig == MIG_SINGLE and not single and any(card.mig for card in cards):
        notes.append("MIG strategy single needs all GPUs cut into slices of one profile: mixed is used")
    fixed = [card for card in cards if card.mig and not card.dynamic]
    if fixed and wishes.mig in (MIG_AUTO, MIG_DYNAMIC):
        notes.append(
            f"GPUs in MIG mode that the agent does not carve: {', '.join(str(card.index) for card in fixed)}"
        )
    return "; ".join(notes)


def _mode(pci: str) -> str:
    """``compute`` or ``display`` by the device's PCI class, ``unknown`` where the machine does not tell."""
    domain, _, rest = pci.partition(":")
    try:
        kind = Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/class").read_text().strip()
    except OSError:
        return "unknown"
    return {_DISPLAY: "display", _COMPUTE: "compute"}.get(kind[:6], "unknown")
