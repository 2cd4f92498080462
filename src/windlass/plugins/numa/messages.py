"""Why a node's zones do not serve a pod, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.plugins.numa.kubelet_allocation import is_memory, unit_of
from windlass.plugins.numa.topology_hints import hints_of, sets_by_size, sums
from windlass.plugins.numa.zone_usage import NumaService, RowZones, counted
from windlass.spi.numa import CPU, AlignmentPolicy, ContainerKind, NumaNeed, NumaTopology
from windlass.spi.quantities import from_units

_MOST_ZONES_TOLD = 4


def lacking(row_zones: RowZones, requested: NumaService) -> str:
    """``single-numa-node: 8 cpu in one zone: zone 0 has 4 left, zone 1 has 2``; the piece of the pod that is
    told of is the first that no zone (or no set of as few zones as would do) has free."""
    node = row_zones.layout.node
    allocation = row_zones.allocation()
    for amounts in _pieces(requested.need, node):
        for name in sorted(amounts, key=lambda name: (name != CPU, is_memory(name), name)):
            free = [max(0, amount) for amount in allocation.free[name]]
            if not _aligned(row_zones, name, amounts[name], free, requested.policy):
                return f"{requested.policy}: {_one(row_zones, name, amounts[name], free, requested.policy)}"
        if len(amounts) > 1 and not _together(row_zones, amounts, requested.policy):
            return f"{requested.policy}: {_apart(row_zones, amounts, requested.policy)}"
    if len(_pieces(requested.need, node)) > 1:
        return f"{requested.policy}: its containers do not fit into the zones side by side"
    return f"{requested.policy}: the zones do not serve it together"


def wanting(named_policy: AlignmentPolicy, node: NumaTopology | None) -> str:
    """Why a node does not follow the policy that a pod names."""
    if node is None:
        return f"the pod asks for {named_policy}, and nothing is known of the node's NUMA zones"
    if node.policy is not named_policy:
        return f"the pod asks for {named_policy}, and the node's kubelet follows {node.policy}"
    return f"the pod asks for {named_policy}, and the node's CPU manager is not static"


def _pieces(need: NumaNeed, node: NumaTopology) -> Sequence[Mapping[str, int]]:
    if node.pod_scope:
        return [counted(need, node)]
    pieces = [counted(NumaNeed((c,), need.guaranteed), node) for c in need.containers]
    first = [p for p, c in zip(pieces, need.containers, strict=True) if c.kind is not ContainerKind.MAIN]
    return [piece for piece in [*first, *pieces[len(first) :]] if piece]


def _sets(row_zones: RowZones, name: str, wanted: int, free: Sequence[int]) -> int:
    """The sets of zones, of as few as would do, that have so much free."""
    layout = row_zones.layout
    unit = unit_of(name)
    total = layout.allocatable[name] if is_memory(name) else layout.capacity[name]
    among = layout.with_cpus if name == CPU else (1 << layout.size) - 1
    return hints_of(
        -(-wanted // unit), [a // unit for a in total], [a // unit for a in free], among=among
    ).preferred


def _aligned(
    row_zones: RowZones, name: str, wanted: int, free: Sequence[int], policy: AlignmentPolicy
) -> bool:
    return bool(_sets(row_zones, name, wanted, free) & _allowed(row_zones, policy))


def _together(row_zones: RowZones, amounts: Mapping[str, int], policy: AlignmentPolicy) -> bool:
    allocation = row_zones.allocation()
    agreed = _allowed(row_zones, policy)
    for name, wanted in amounts.items():
        agreed &= _sets(row_zones, name, wanted, [max(0, a) for a in allocation.free[name]])
    return bool(agreed)


def _allowed(row_zones: RowZones, policy: AlignmentPolicy) -> int:
    if policy is AlignmentPolicy.SINGLE_NUMA_NODE:
        return sum(1 << (1 << place) for place in range(row_zones.layout.size))
    return ~0


def _one(row_zones: RowZones, name: str, wanted: int, free: Sequence[int], policy: AlignmentPolicy) -> str:
    amount = f"{from_units(name, wanted)} {name}"
    in_all = sums(row_zones.layout.allocatable[name])
    most = max(in_all[1 << place] for place in range(row_zones.layout.size))
    if policy is AlignmentPolicy.SINGLE_NUMA_NODE and wanted > most:
        return f"{amount} in one zone: no zone has more than {from_units(name, most)}"
    return f"{amount} in {_where(policy)}: {_left(row_zones, {name: wanted})}"


def _apart(row_zones: RowZones, amounts: Mapping[str, int], policy: AlignmentPolicy) -> str:
    """Each of the amounts could be had, but not of the same zones."""
    least = {name: _least(row_zones, name, wanted) for name, wanted in amounts.items()}
    if policy is not AlignmentPolicy.SINGLE_NUMA_NODE and len(set(least.values())) > 1:
        needed = ", ".join(
            f"{from_units(name, amounts[name])} {name} by {count} zone{'s' * (count > 1)}"
            for name, count in sorted(least.items(), key=lambda item: (item[1], item[0]))
        )
        return f"all of it from the same zones, but the fewest that would do differ: {needed}"
    return f"{_told(amounts)} not together in {_where(policy)}: {_left(row_zones, amounts)}"


def _least(row_zones: RowZones, name: str, wanted: int) -> int:
    """Of how few zones the amount could be had if they were empty."""
    layout = row_zones.layout
    total = layout.allocatable[name] if is_memory(name) else layout.capacity[name]
    in_all = sums(total)
    fitting = [mask.bit_count() for mask in sets_by_size(layout.size) if in_all[mask] >= wanted]
    return min(fitting, default=layout.size)


def _where(policy: AlignmentPolicy) -> str:
    if policy is AlignmentPolicy.SINGLE_NUMA_NODE:
        return "one zone"
    return "as few zones as would do"


def _told(amounts: Mapping[str, int]) -> str:
    return " and ".join(f"{from_units(name, amount)} {name}" for name, amount in sorted(amounts.items()))


def _left(row_zones: RowZones, amounts: Mapping[str, int]) -> str:
    """``zone 0 has 4 cpu left, zone 1 has 2 cpu left``."""
    allocation = row_zones.allocation()
    told = []
    for place, zone in enumerate(row_zones.layout.node.zones[:_MOST_ZONES_TOLD]):
        has = {name: max(0, allocation.free[name][place]) for name in amounts}
        told.append(f"zone {zone.number} has {_told(has)} left")
    more = row_zones.layout.size - len(told)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")
