"""Devices of single rows for assignments: state keys, plans of needs, budgets of the planes.

Plans and caches are kept by device set and need.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

import numpy as np

from windlass.engine.devices.assignment import Budgets, Choose, NodeDeviceAssignment
from windlass.engine.devices.need_cache import NeedCache
from windlass.engine.devices.need_on_device import NeedOnDevice, needs_on_device
from windlass.engine.devices.share_table import RowDevices
from windlass.engine.devices.whole_device_table import bits
from windlass.engine.nodes.table import NodeTable
from windlass.spi.devices import DeviceNeed

NeedCaches = dict[int, NeedCache]
"""Code of a device set → cache for one need."""
MAX_CACHES = 1_000
MAX_CACHED = 50_000


class DeviceRows:
    """Devices of single rows, ready for assignments."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._shares = table.shares
        self.releasing: Container[str] = ()
        """Keys of the tasks that terminate, really or in a simulation."""
        self._plans: dict[tuple[int, DeviceNeed], tuple[NeedOnDevice, ...]] = {}
        self._caches: dict[DeviceNeed, NeedCaches | None] = {}
        """Need → cache by device set; ``None`` if its answers cannot be cached."""
        self._caches_by_id: dict[int, tuple[DeviceNeed, NeedCaches | None]] = {}
        """The same by the identity of a need; comparing equal ones costs more than a look-up."""

    # ------------------------------------------------------------------ states

    def state_key(self, row: int, needs: Sequence[DeviceNeed]) -> bytes:
        """Return the state of the row's devices as far as it matters for these needs."""
        key = self._shares.state_key(row)
        devices_here = self._shares.row(row)
        if any(need.by_name for need in needs):
            key += repr(devices_here.uuids).encode()
        if devices_here.consumption and any(need.joint is not None for need in needs):
            key += repr(sorted(devices_here.consumption.items())).encode()
        if devices_here.tokens and any(need.carries or need.avoids for need in needs):
            tokens = {token for need in needs for token in (*need.carries, *need.avoids)}
            relevant = [
                (slot, name, sums)
                for slot, counts in sorted(devices_here.tokens.items())
                for name, sums in sorted(counts.items())
                if name[1] in tokens
            ]
            key += repr(relevant).encode()
        return key

    def summary_keys(
        self, rows: Sequence[int], devices: Sequence[DeviceNeed], *, empty: bool = False
    ) -> list[tuple[object, ...]]:
        """Return the key of each row's device summary. Equal keys mean equal summaries.

        ``empty``: for rows without any task; the key then also decides how many tasks
        the row holds.
        """
        shares = self._shares
        indices = np.array(rows, dtype=np.int64)
        shares.sync_all(indices)
        names = {need.listed for need in devices if need.listed}
        if empty:
            names.update(shares.resources)
        codes = self._table.resources.codes
        columns = [codes[name] for name in sorted(names) if name in codes]
        planes_by_row = [b""] * len(rows)
        if columns:
            planes = self._table.planes[indices][:, : 1 if empty else None, columns]
            planes_by_row = [row_part.tobytes() for row_part in np.ascontiguousarray(planes)]
        uuids = any(need.by_name for need in devices)
        if not empty and (uuids or any(need.carries or need.avoids for need in devices)):
            return [
                (self.state_key(row, devices), row_part)
                for row, row_part in zip(rows, planes_by_row, strict=True)
            ]
        keys: list[tuple[object, ...]] = []
        for row, plane_key in zip(rows, planes_by_row, strict=True):
            devices_here = shares.row(row)
            if empty:
                keys.append((devices_here.device_set.code, devices_here.uuids if uuids else (), plane_key))
            else:
                keys.append((devices_here.device_set.code, plane_key, *devices_here.states))
        return keys

    # ------------------------------------------------------------------ assignments

    def assignment(
        self, row: int, devices: Sequence[DeviceNeed], choose: Choose | None, *, later: bool
    ) -> NodeDeviceAssignment:
        self._shares.sync(row)
        return self.open(row, self.budgets(row, devices), choose, later=later)

    def open(self, row: int, budgets: Budgets, choose: Choose | None, *, later: bool) -> NodeDeviceAssignment:
        devices_here = self._shares.row(row)
        vacated = self.vacated(row, devices_here) if later else frozenset[int]()
        cells = self._shares.cells[row].tolist()
        return NodeDeviceAssignment(devices_here, cells, budgets, later=later, vacated=vacated, choose=choose)

    def assignment_if_empty(
        self, row: int, devices: Sequence[DeviceNeed], choose: Choose | None
    ) -> NodeDeviceAssignment:
        """Return the assignment of the row as if nothing ran on it."""
        self._shares.sync(row)
        devices_here = self._shares.row(row)
        budgets = {name: [planes[0], 0, 0, 0] for name, planes in self.budgets(row, devices).items()}
        bare = RowDevices(devices_here.device_set, devices_here.uuids, {})
        nothing = np.zeros_like(self._shares.cells[row]).tolist()
        return NodeDeviceAssignment(bare, nothing, budgets, later=False, choose=choose)

    def vacated(self, row: int, devices_here: RowDevices, evicted: Collection[str] = ()) -> frozenset[int]:
        """Return the slots of devices that plain pods hold whole, if all these pods terminate."""
        releasing: dict[tuple[str, int], int] = {}
        staying: set[tuple[str, int]] = set()
        for entry in self._table.tasks[row].values():
            for resource, mask in entry.masks:
                for index in bits(mask):
                    if entry.key in self.releasing or entry.key in evicted:
                        releasing[resource, index] = 1
                    else:
                        staying.add((resource, index))
        slots = devices_here.device_set.slots
        return frozenset(slots[index] for index in releasing if index not in staying and index in slots)

    def budgets(self, row: int, devices: Sequence[DeviceNeed], extra: set[str] | None = None) -> Budgets:
        """Return the planes of the resources that an assignment may charge."""
        names = {facts.device.resource for facts in self._shares.row(row).device_set.devices}
        names.update(need.listed for need in devices if need.listed)
        names |= extra or set()
        codes, planes = self._table.resources.codes, self._table.planes[row]
        return {
            name: planes[:, codes[name]].tolist() if name in codes else [0, 0, 0, 0] for name in sorted(names)
        }

    def is_listed(self, row: int, need: DeviceNeed) -> bool:
        node = self._table.nodes[row]
        return bool(need.listed and node is not None and node.allocatable.get(need.listed, 0) > 0)

    # ------------------------------------------------------------------ caches of needs

    def plan(self, row: int, devices: Sequence[DeviceNeed]) -> list[tuple[NeedOnDevice, ...]]:
        devices_here = self._shares.row(row)
        plans = []
        for need in devices:
            if need.by_name:
                plans.append(needs_on_device(need, devices_here.device_set, devices_here.uuids))
                continue
            plan = self._plans.get((devices_here.device_set.code, need))
            if plan is None:
                if len(self._plans) > MAX_CACHED:
                    self._plans.clear()
                plan = self._plans[devices_here.device_set.code, need] = needs_on_device(
                    need, devices_here.device_set, devices_here.uuids
                )
            plans.append(plan)
        return plans

    def cache(self, row: int, need: DeviceNeed) -> NeedCache | None:
        """Return the cache of the row's device set for the need; ``None`` if it cannot be cached.

        Afterwards the row's devices match the bit sets.
        """
        caches = self.caches(need)
        if caches is None or (need.listed and self.is_listed(row, need)):
            return None
        self._shares.sync(row)
        return cache_of(caches, need, self._shares.row(row))

    def caches(self, need: DeviceNeed) -> NeedCaches | None:
        """Return the caches for the need by device set; ``None`` if it cannot be cached."""
        known = self._caches_by_id.get(id(need))
        return known[1] if known is not None else self._find_caches(need)

    def _find_caches(self, need: DeviceNeed) -> NeedCaches | None:
        if len(self._caches_by_id) > MAX_CACHES or len(self._caches) > MAX_CACHES:
            self._caches_by_id.clear()
            self._caches.clear()
        if need not in self._caches:
            self._caches[need] = {} if NeedCache.is_cacheable(need) else None
        caches = self._caches[need]
        self._caches_by_id[id(need)] = need, caches
        return caches

    def available(self, row: int, need: DeviceNeed) -> dict[str, int]:
        """Return the amounts available in the planes, of the resources that could serve the need."""
        names = (need.resource,) if need.resource else tuple(self._shares.resources)
        codes, planes = self._table.resources.codes, self._table.planes
        amounts = {}
        for name in names:
            if name in codes:
                allocatable, used, releasing, nominated = planes[row, :, codes[name]].tolist()
                amounts[name] = allocatable - used - max(nominated - releasing, 0)
        return amounts


def cache_of(caches: NeedCaches, need: DeviceNeed, devices: RowDevices) -> NeedCache:
    """Return the cache for the device set of a row. It is built on first use."""
    cache = caches.get(devices.device_set.code)
    if cache is None:
        plan = needs_on_device(need, devices.device_set, devices.uuids)
        cache = caches[devices.device_set.code] = NeedCache(need, plan, devices)
    return cache
