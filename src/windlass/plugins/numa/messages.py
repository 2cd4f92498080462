"""Messages on why a node's NUMA zones do not fit a pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.plugins.numa.kubelet_allocation import is_memory, unit_of
from windlass.plugins.numa.topology_hints import hints_of, sets_by_size, sums
from windlass.plugins.numa.zone_usage import NumaService, RowZones, counted
from windlass.spi.numa import CPU, AlignmentPolicy, ContainerKind, NumaNeed, NumaTopology
from windlass.spi.quantities import from_units

_MAX_ZONES = 4


def lacking(row_zones: RowZones, requested: NumaService) -> str:
    """Return a text such as ``single-numa-node: 8 cpu in one zone: zone 0 has 4 left,
    zone 1 has 2``.

    It names the first part of the request that no zone has free, or no set with the
    minimum number of zones.
    """
    node = row_zones.layout.node
    allocation = row_zones.allocation()
    for amounts in _pieces(requested.need, node):
        for name in sorted(amounts, key=lambda name: (name != CPU, is_memory(name), name)):
            free = [max(0, amount) for amount in allocation.free[name]]
            if not _aligned(row_zones, name, amounts[name], free, requested.policy):
                return f"{requested.policy}: {_single_text(row_zones, name, amounts[name], free, requested.policy)}"
        if len(amounts) > 1 and not _together(row_zones, amounts, requested.policy):
            return f"{requested.policy}: {_not_together_text(row_zones, amounts, requested.policy)}"
    if len(_pieces(requested.need, node)) > 1:
        return f"{requested.policy}: its containers do not fit into the zones side by side"
    return f"{requested.policy}: the zones do not serve it together"


def wanting(named_policy: AlignmentPolicy, node: NumaTopology | None) -> str:
    """Return why a node does not follow the policy that a pod names."""
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
    """Return the sets with the minimum number of zones that have the amount free."""
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


def _single_text(
    row_zones: RowZones, name: str, wanted: int, free: Sequence[int], policy: AlignmentPolicy
) -> str:
    amount = f"{from_units(name, wanted)} {name}"
    in_all = sums(row_zones.layout.allocatable[name])
    most = max(in_all[1 << place] for place in range(row_zones.layout.size))
    if policy is AlignmentPolicy.SINGLE_NUMA_NODE and wanted > most:
        return f"{amount} in one zone: no zone has more than {from_units(name, most)}"
    return f"{amount} in {_zones_text(policy)}: {_free_text(row_zones, {name: wanted})}"


def _not_together_text(row_zones: RowZones, amounts: Mapping[str, int], policy: AlignmentPolicy) -> str:
    """Return the text for amounts that are available, but not in the same zones."""
    least = {name: _least(row_zones, name, wanted) for name, wanted in amounts.items()}
    if policy is not AlignmentPolicy.SINGLE_NUMA_NODE and len(set(least.values())) > 1:
        needed = ", ".join(
            f"{from_units(name, amounts[name])} {name} by {count} zone{'s' * (count > 1)}"
            for name, count in sorted(least.items(), key=lambda item: (item[1], item[0]))
        )
        return f"all of it from the same zones, but the fewest that would do differ: {needed}"
    return f"{_amounts_text(amounts)} not together in {_zones_text(policy)}: {_free_text(row_zones, amounts)}"


def _least(row_zones: RowZones, name: str, wanted: int) -> int:
    """Return the minimum number of zones that have the amount if they are empty."""
    layout = row_zones.layout
    total = layout.allocatable[name] if is_memory(name) else layout.capacity[name]
    in_all = sums(total)
    fitting = [mask.bit_count() for mask in sets_by_size(layout.size) if in_all[mask] >= wanted]
    return min(fitting, default=layout.size)


def _zones_text(policy: AlignmentPolicy) -> str:
    if policy is AlignmentPolicy.SINGLE_NUMA_NODE:
        return "one zone"
    return "as few zones as would do"


def _amounts_text(amounts: Mapping[str, int]) -> str:
    return " and ".join(f"{from_units(name, amount)} {name}" for name, amount in sorted(amounts.items()))


def _free_text(row_zones: RowZones, amounts: Mapping[str, int]) -> str:
    """Return a text such as ``zone 0 has 4 cpu left, zone 1 has 2 cpu left``."""
    allocation = row_zones.allocation()
    texts = []
    for place, zone in enumerate(row_zones.layout.node.zones[:_MAX_ZONES]):
        has = {name: max(0, allocation.free[name][place]) for name in amounts}
        texts.append(f"zone {zone.number} has {_amounts_text(has)} left")
    more = row_zones.layout.size - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")
