"""Vocabularies of resource names for parts of devices: what each means, and how a container's limits are read.

Facts: the vendors' own words. A unit that is not known here is refused by name, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from windlass.api.devices.request import (
    GPU,
    MAX_DEVICES,
    MIG,
    MOST_MIB,
    PERCENT,
    WHOLE,
    ContainerDeviceRequest,
    ContainerResources,
    RequestReader,
)
from windlass.api.errors import FieldError
from windlass.api.quantities import QuantityError, parse

_PROFILE = re.compile(r"[1-9][0-9]?g\.[0-9]{1,4}gb(?:\+[a-z][a-z.]*|-me)?")


FOUR_SLICED = ("1g.6gb", "2g.12gb", "4g.24gb")
"""Profiles of devices with four compute slices (A30); all others have seven."""


@dataclass(frozen=True, slots=True)
class ResourceVocabulary:
    """One vocabulary of resource names.

    ``number``: how many devices; ``memory`` of each device in units of ``unit_mib``; ``percentage`` of each device's
    memory; ``cores``: percent of each device's compute, under any of these names.
    """

    title: str
    number: str
    memory: str
    unit_mib: int = 1
    percentage: str = ""
    cores: tuple[str, ...] = ()
    card: str = GPU
    memory_is_total: bool = False
    """The memory is that of all the devices together, in equal parts."""
    whole_without_memory: bool = True
    """A number of devices without a word on memory means all the memory of each."""


VOLCANO_VGPU = ResourceVocabulary(
    "Volcano vGPU",
    "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory",
    percentage="volcano.sh/vgpu-memory-percentage",
    cores=("volcano.sh/vgpu-cores",),
)
VOLCANO = ResourceVocabulary("Volcano GPU sharing", "volcano.sh/gpu-number", "volcano.sh/gpu-memory")
HAMI = ResourceVocabulary(
    "HAMi",
    GPU,
    "nvidia.com/gpumem",
    percentage="nvidia.com/gpumem-percentage",
    cores=("nvidia.com/gpucores",),
)
ALIYUN = ResourceVocabulary(
    "aliyun.com",
    "aliyun.com/gpu-count",
    "aliyun.com/gpu-mem",
    unit_mib=1024,
    cores=("aliyun.com/gpu-core.percentage", "aliyun.com/gpu-core"),
    memory_is_total=True,
    whole_without_memory=False,
)
QGPU = ResourceVocabulary(
    "qGPU",
    "",
    "tke.cloud.tencent.com/qgpu-memory",
    unit_mib=1024,
    cores=("tke.cloud.tencent.com/qgpu-core",),
    whole_without_memory=False,
)
FAMILIES = (VOLCANO_VGPU, VOLCANO, HAMI, ALIYUN, QGPU)

UNIT_UNKNOWN = (
    "amd.com/gpumem",
    "amd.com/gpucores",
    "cambricon.com/mlu.smlu.vmemory",
    "cambricon.com/mlu.smlu.vcore",
    "hygon.com/dcumem",
    "hygon.com/dcucores",
    "mthreads.com/sgpu-memory",
    "mthreads.com/sgpu-core",
    "metax-tech.com/vmemory",
    "metax-tech.com/vcore",
    "kunlunxin.com/vxpu-memory",
    "enflame.com/gcu-memory",
    "enflame.com/gcu-core",
)
"""Amounts of devices that only their makers' device plug-ins can read: whole devices of them are served."""

_ASCEND = re.compile(r"(huawei\.com/Ascend[0-9A-Z-]+?)-(memory|core)")
ASCEND_TEMPLATES: Mapping[str, tuple[tuple[str, int, int], ...]] = {
    "huawei.com/Ascend910B3": (("vir05_1c_16g", 16384, 250), ("vir10_3c_32g", 32768, 500)),
    "huawei.com/Ascend910B2": (
        ("vir03_1c_8g", 8192, 125),
        ("vir06_1c_16g", 16384, 250),
        ("vir12_3c_32g", 32768, 500),
    ),
    "huawei.com/Ascend910B4": (("vir05_1c_8g", 8192, 250), ("vir10_3c_16g", 16384, 500)),
    "huawei.com/Ascend310P": (("vir01", 3072, 125), ("vir02", 6144, 250), ("vir04", 12288, 500)),
}
"""Chip → its vNPU templates: name, memory in MiB, thousandths of its AI cores; rising."""

WORDS = frozenset(
    {
        *(
            name
            for family in FAMILIES
            for name in (family.number, family.memory, family.percentage, *family.cores)
            if name and name != GPU
        ),
        *UNIT_UNKNOWN,
    }
)
"""Resources of a container that speak of parts of devices."""


def is_word(resource: str) -> bool:
    """Return whether a container's resource speaks of parts of devices, and is no amount of its own on a node."""
    return resource in WORDS or is_ascend_part(resource)


def is_ascend_part(resource: str) -> bool:
    """Return whether the resource is memory or AI cores of one Ascend chip."""
    return _ASCEND.fullmatch(resource) is not None


def profile_of(resource: str) -> str:
    """``nvidia.com/mig-1g.10gb.me`` → ``1g.10gb+me``; ``""`` for what is no MIG profile."""
    if not resource.startswith(MIG):
        return ""
    text = resource.removeprefix(MIG)
    head, dot, rest = text.partition("gb")
    if dot and rest.startswith("."):
        text = f"{head}gb+{rest[1:]}"
    return text if _PROFILE.fullmatch(text) else ""


def resource_of(profile: str) -> str:
    """``1g.10gb+me`` → ``nvidia.com/mig-1g.10gb.me``, as the device plug-in names it."""
    return MIG + profile.replace("+", ".")


def compute_share(profile: str) -> int:
    """``3g.40gb`` → 429: compute slices of a device's seven (an A30's four), in thousandths, rounded up."""
    slices = int(profile.partition("g")[0])
    return min(WHOLE, -(-slices * WHOLE // (4 if profile in FOUR_SLICED else 7)))


def read_container(container: ContainerResources, reader: RequestReader) -> None:
    amounts = dict(container.amounts)
    spoken = [family for family in FAMILIES if _speaks(family, amounts)]
    for name in amounts:
        if name in UNIT_UNKNOWN:
            reader.problems.append(
                FieldError.forbidden(
                    f"{container.place}[{name}]",
                    "in which units its maker's device plug-in counts this is not known here: ask for whole GPUs "
                    f"({name.partition('/')[0]}/…), which are served",
                )
            )
    if len(spoken) > 1:
        titles = " and ".join(family.title for family in spoken)
        reader.problems.append(
            FieldError.forbidden(
                container.place,
                f"container {container.name} asks for parts of a GPU in the words of {titles}: keep one of them",
            )
        )
        return
    for family in spoken:
        ask = _family_ask(family, container, amounts, reader)
        if ask is not None:
            reader.asks.append(ask)
    _ascend(container, amounts, reader)
    _profiles(container, amounts, reader)


def _speaks(family: ResourceVocabulary, amounts: Mapping[str, str]) -> bool:
    names = (family.memory, family.percentage, *family.cores)
    return any(name in amounts for name in names) or (family.number in amounts and family.number in WORDS)


def _family_ask(
    family: ResourceVocabulary,
    container: ContainerResources,
    amounts: Mapping[str, str],
    reader: RequestReader,
) -> ContainerDeviceRequest | None:
    """One container's words of one vocabulary."""
    field = _Fields(container.place, amounts, reader)
    before = len(reader.problems)
    count = field.integer(family.number, 1, MAX_DEVICES)
    memory = field.integer(family.memory, 1, MOST_MIB)
    percentage = field.integer(family.percentage, 1, PERCENT)
    cores = _cores(family, field)
    if len(reader.problems) > before:
        return None
    if memory is not None and percentage is not None:
        field.refuse(family.percentage, f"{family.memory} is given too: keep one of them")
        return None
    if family is QGPU and cores is not None and cores >= PERCENT:
        return _whole_qgpu(container, field, cores, memory)
    if family is VOLCANO and count is not None:
        if memory is not None:
            field.refuse(family.memory, f"{family.number} asks for whole GPUs: keep one of them")
            return None
        reader.whole[GPU] = reader.whole.get(GPU, 0) + count * WHOLE
        return None
    cards = count or 1
    mib = (memory or 0) * family.unit_mib
    if family.memory_is_total and memory is not None:
        if memory % cards:
            field.refuse(
                family.memory,
                f"{memory} GiB cannot be divided evenly over {cards} GPUs: ask for a multiple of {cards}",
            )
            return None
        mib //= cards
    share = 0 if percentage is None else percentage * WHOLE // PERCENT
    if memory is None and percentage is None and family.whole_without_memory:
        share = WHOLE
    if memory is None and percentage is None and cores is None and family is ALIYUN:
        reader.whole[GPU] = reader.whole.get(GPU, 0) + cards * WHOLE
        return None
    return ContainerDeviceRequest(
        container.name,
        family.card,
        cards,
        milli=(cores or 0) * WHOLE // PERCENT,
        memory_mib=mib,
        memory_milli=share,
        slices=mib > 0 and not cores,
        taken=((GPU, cards * WHOLE),) if family is HAMI and count else (),
        words=_counted(family, cards, memory, cores),
    )


def _counted(
    family: ResourceVocabulary, cards: int, memory: int | None, cores: int | None
) -> tuple[tuple[str, int], ...]:
    """The words as amounts over all devices, in engine units."""
    per = 1 if family.memory_is_total else cards
    found = []
    if family.number in WORDS:
        found.append((family.number, cards * WHOLE))
    if memory is not None:
        found.append((family.memory, memory * per))
    if cores is not None:
        found.append((family.cores[0], cores * cards))
    return tuple(sorted(found))


def _cores(family: ResourceVocabulary, field: _Fields) -> int | None:
    given = [name for name in family.cores if name in field.amounts]
    if len(given) > 1:
        field.refuse(given[1], f"{given[0]} is given too and means the same: keep one of them")
        return None
    if not given:
        return None
    most = PERCENT * MAX_DEVICES if family is QGPU else PERCENT
    return field.integer(given[0], 0, most)


def _whole_qgpu(
    container: ContainerResources, field: _Fields, cores: int, memory: int | None
) -> ContainerDeviceRequest | None:
    name = QGPU.cores[0]
    if cores % PERCENT:
        field.refuse(
            name, f"{cores} is more than one GPU and no multiple of 100: ask for up to 99, 100, 200, …"
        )
    elif memory is not None:
        field.refuse(QGPU.memory, f"{name} {cores} asks for whole GPUs with all their memory: leave it out")
    else:
        whole = field.reader.whole
        whole[GPU] = whole.get(GPU, 0) + cores // PERCENT * WHOLE
    return None


def _ascend(container: ContainerResources, amounts: Mapping[str, str], reader: RequestReader) -> None:
    """A part of an Ascend chip: the smallest template that has as much memory."""
    field = _Fields(container.place, amounts, reader)
    for name in amounts:
        match = _ASCEND.fullmatch(name)
        if match is None:
            continue
        chip, kind = match[1], match[2]
        templates = ASCEND_TEMPLATES.get(chip, ())
        if kind == "core":
            field.refuse(
                name, f"a part of an Ascend chip is chosen by its memory: ask for {chip}-memory (MiB)"
            )
        elif not templates:
            known = ", ".join(sorted(ASCEND_TEMPLATES))
            field.refuse(
                name, f"the templates of {chip} are not known here (those of {known} are): ask for it whole"
            )
        elif (memory := field.integer(name, 1, MOST_MIB)) is not None:
            fitting = next((t for t in templates if t[1] >= memory), None)
            count = field.integer(chip, 1, MAX_DEVICES) or 1
            taken = ((chip, count * WHOLE),) if chip in amounts else ()
            milli, mib = (fitting[2], fitting[1]) if fitting is not None else (WHOLE, memory)
            reader.asks.append(
                ContainerDeviceRequest(container.name, chip, count, milli, mib, slices=False, taken=taken)
            )


def _profiles(container: ContainerResources, amounts: Mapping[str, str], reader: RequestReader) -> None:
    """MIG slices by profile."""
    for name in amounts:
        if (profile := profile_of(name)) and amounts[name] != "0":
            count = _Fields(container.place, amounts, reader).integer(name, 1, MAX_DEVICES)
            if count is not None:
                taken = ((name, count * WHOLE),)
                reader.asks.append(
                    ContainerDeviceRequest(container.name, count=count, profile=profile, taken=taken)
                )


@dataclass(slots=True)
class _Fields:
    """Amounts of one container, with the words for their fields."""

    place: str
    amounts: Mapping[str, str]
    reader: RequestReader

    def refuse(self, name: str, why: str) -> None:
        self.reader.problems.append(FieldError.forbidden(f"{self.place}[{name}]", why))

    def integer(self, name: str, least: int, most: int) -> int | None:
        """The amount as a whole number; ``None`` where it is absent or, with a problem, wrong."""
        if not name or name not in self.amounts:
            return None
        text = self.amounts[name]
        try:
            value = parse(text)
        except QuantityError as error:
            self.reader.problems.append(FieldError(f"{self.place}[{name}]", str(error)))
            return None
        if value.denominator != 1 or not least <= value <= most:
            self.reader.problems.append(
                FieldError.invalid(
                    f"{self.place}[{name}]", text, f"must be a whole number from {least} to {most}"
                )
            )
            return None
        return int(value)
