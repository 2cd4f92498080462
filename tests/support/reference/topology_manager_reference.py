"""A kubelet's Topology Manager restated as plainly as can be: real processors, devices and hints in lists, every
combination gone through. Slow on purpose; for comparing the product's arithmetic with."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

Hint = tuple[frozenset[int] | None, bool]
"""(zones, or None for any; preferred)."""


class AdmissionError(Exception):
    """The pod is refused."""


@dataclass
class Machine:
    """``cpus``: id → zone, all of them; ``reserved``: those for the system. ``devices``: resource → id → zone.
    ``memory``: resource → zone → allocatable bytes."""

    zones: list[int]
    policy: str
    scope: str
    cpus: dict[int, int]
    reserved: set[int]
    devices: dict[str, dict[str, int]]
    memory: dict[str, dict[int, int]]
    static_cpus: bool = True
    static_memory: bool = True
    distances: dict[int, dict[int, int]] | None = None
    free_cpus: set[int] = field(default_factory=set)
    free_devices: dict[str, set[str]] = field(default_factory=dict)
    free_memory: dict[str, dict[int, int]] = field(default_factory=dict)
    assignments: dict[int, int] = field(default_factory=dict)
    cells: dict[int, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free_cpus = set(self.cpus) - self.reserved
        self.free_devices = {name: set(found) for name, found in self.devices.items()}
        self.free_memory = {name: dict(found) for name, found in self.memory.items()}
        self.assignments = dict.fromkeys(self.zones, 0)
        self.cells = {zone: frozenset([zone]) for zone in self.zones}


def subsets(zones: list[int]) -> list[frozenset[int]]:
    return [
        frozenset(chosen)
        for size in range(1, len(zones) + 1)
        for chosen in itertools.combinations(zones, size)
    ]


def number(zones: frozenset[int]) -> int:
    return sum(1 << zone for zone in zones)


def narrower(one: frozenset[int], other: frozenset[int]) -> bool:
    if len(one) == len(other):
        return number(one) < number(other)
    return len(one) < len(other)


class Kubelet:
    """Admits pods to a machine, one after the other."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def admit(self, pod: dict[str, Any]) -> dict[int, dict[str, int]]:
        """``pod``: ``guaranteed`` and ``containers`` of ``kind`` (init, sidecar, main), ``cpu_milli`` and other
        amounts. Returns zone → resource → count; raises :class:`AdmissionError`, the machine then unusable."""
        m = self.machine
        before = self._counts()
        self.reuse_cpus: set[int] = set()
        self.reuse_devices: dict[str, set[str]] = {name: set() for name in m.devices}
        self.reuse_memory: dict[tuple[frozenset[int], str], int] = {}
        whole: tuple[frozenset[int] | None, bool] | None = None
        if m.scope == "pod" and m.policy != "none":
            whole = self._affinity(pod, self._sum(pod))
        for container in pod["containers"]:
            if m.policy == "none":
                hint: Hint = (None, False)
            else:
                hint = whole or self._affinity(pod, container["amounts"])
            self._give_devices(container, hint)
            self._give_cpus(pod, container, hint)
            self._give_memory(pod, container, hint)
        after = self._counts()
        taken: dict[int, dict[str, int]] = {}
        for zone in m.zones:
            for name in before[zone]:
                if before[zone][name] != after[zone][name]:
                    taken.setdefault(zone, {})[name] = before[zone][name] - after[zone][name]
        return taken

    def _counts(self) -> dict[int, dict[str, int]]:
        m = self.machine
        found: dict[int, dict[str, int]] = {}
        for zone in m.zones:
            found[zone] = {"cpu": 1000 * sum(1 for cpu in m.free_cpus if m.cpus[cpu] == zone)}
            for name, free in m.free_devices.items():
                found[zone][name] = 1000 * sum(1 for one in free if m.devices[name][one] == zone)
            for name, amounts in m.free_memory.items():
                found[zone][name] = amounts[zone]
        return found

    def _sum(self, pod: dict[str, Any]) -> dict[str, int]:
        names = {name for container in pod["containers"] for name in container["amounts"]}
        total = {}
        for name in names:
            apps = sidecars = inits = 0
            for container in pod["containers"]:
                amount = container["amounts"].get(name, 0)
                if name == "cpu" and amount % 1000:
                    amount = 0
                if container["kind"] == "sidecar":
                    sidecars += amount
                elif container["kind"] == "init":
                    inits = max(inits, sidecars + amount)
                else:
                    apps += amount
            total[name] = max(apps + sidecars, inits)
        return total

    # ------------------------------------------------------------------ hints

    def _affinity(self, pod: dict[str, Any], amounts: dict[str, int]) -> Hint:
        m = self.machine
        asked = [name for name in m.devices if amounts.get(name, 0)]
        providers = [self._device_hints(name, amounts[name] // 1000) for name in asked]
        if self._exclusive(pod, amounts):
            providers.append(self._cpu_hints(amounts["cpu"] // 1000))
        wanted = self._wanted_memory(pod, amounts)
        if wanted:
            hints = self._memory_hints(wanted)
            providers += [hints or [(None, True)]] * len(wanted)
        providers = [hints or [(None, False)] for hints in providers]
        merged = self._merge(providers)
        if m.policy in ("restricted", "single-numa-node") and not merged[1]:
            raise AdmissionError
        return merged

    def _merge(self, providers: list[list[Hint]]) -> Hint:
        m = self.machine
        everything = frozenset(m.zones)
        if m.policy == "single-numa-node":
            providers = [
                [hint for hint in hints if hint[1] and (hint[0] is None or len(hint[0]) == 1)]
                for hints in providers
            ]
        most = max(
            (
                min(len(zones) for zones, _ in hints if zones is not None)
                for hints in providers
                if any(zones is not None for zones, _ in hints)
            ),
            default=0,
        )
        best: tuple[frozenset[int], bool] | None = None
        for combination in itertools.product(*providers):
            named = [zones for zones, _ in combination if zones is not None]
            merged = frozenset.intersection(everything, *named)
            preferred = all(good for _, good in combination) and all(zones == named[0] for zones in named)
            if merged:
                best = (merged, preferred) if best is None else self._better(best, (merged, preferred), most)
        if best is None:
            best = (everything, False)
        if m.policy == "single-numa-node" and best[0] == everything:
            return None, best[1]
        return best

    def _better(
        self, current: tuple[frozenset[int], bool], other: tuple[frozenset[int], bool], most: int
    ) -> tuple[frozenset[int], bool]:
        if current[1] != other[1]:
            return current if current[1] else other
        if current[1] or len(current[0]) > most:
            return self._closer(current, other)
        if len(current[0]) == most:
            return self._closer(current, other) if len(other[0]) == most else current
        if len(other[0]) > most:
            return current
        if len(other[0]) == most or len(other[0]) > len(current[0]):
            return other
        if len(other[0]) < len(current[0]):
            return current
        return self._closer(current, other)

    def _closer(
        self, current: tuple[frozenset[int], bool], other: tuple[frozenset[int], bool]
    ) -> tuple[frozenset[int], bool]:
        m = self.machine
        if m.distances is not None and m.policy != "single-numa-node" and len(current[0]) == len(other[0]):
            one, two = self._average(current[0]), self._average(other[0])
            if one != two:
                return current if one < two else other
        return other if narrower(other[0], current[0]) else current

    def _average(self, zones: frozenset[int]) -> float:
        assert self.machine.distances is not None
        pairs = [self.machine.distances[a][b] for a in zones for b in zones]
        return sum(pairs) / len(pairs)

    def _device_hints(self, name: str, wanted: int) -> list[Hint]:
        m = self.machine
        least, found = len(m.zones), []
        reusable, devices = self.reuse_devices[name], m.devices[name]
        for zones in subsets(m.zones):
            if sum(1 for zone in devices.values() if zone in zones) >= wanted:
                least = min(least, len(zones))
            if any(devices[one] not in zones for one in reusable):
                continue
            matching = len(reusable) + sum(1 for one in m.free_devices[name] if devices[one] in zones)
            if matching >= wanted:
                found.append(zones)
        return [(zones, len(zones) == least) for zones in found]

    def _cpu_hints(self, wanted: int) -> list[Hint]:
        m = self.machine
        members = sorted(set(m.cpus.values()))
        least, found = len(members), []
        for zones in subsets(members):
            if sum(1 for zone in m.cpus.values() if zone in zones) >= wanted:
                least = min(least, len(zones))
            if any(m.cpus[cpu] not in zones for cpu in self.reuse_cpus):
                continue
            matching = len(self.reuse_cpus) + sum(1 for cpu in m.free_cpus if m.cpus[cpu] in zones)
            if matching >= wanted:
                found.append(zones)
        return [(zones, len(zones) == least) for zones in found]

    def _memory_hints(self, wanted: dict[str, int]) -> list[Hint]:
        m = self.machine
        least, found = len(m.zones), []
        for zones in subsets(m.zones):
            if any(
                sum(m.memory.get(n, {}).get(z, 0) for z in zones) < amount for n, amount in wanted.items()
            ):
                continue
            least = min(least, len(zones))
            if len(zones) == 1:
                (only,) = zones
                if len(m.cells[only]) > 1:
                    continue
            elif any(m.assignments[z] and (len(m.cells[z]) == 1 or m.cells[z] != zones) for z in zones):
                continue
            if any(
                sum(m.free_memory.get(n, {}).get(z, 0) for z in zones) + self.reuse_memory.get((zones, n), 0)
                < amount
                for n, amount in wanted.items()
            ):
                continue
            found.append(zones)
        return [(zones, len(zones) == least) for zones in found]

    def _exclusive(self, pod: dict[str, Any], amounts: dict[str, int]) -> bool:
        cpu = amounts.get("cpu", 0)
        m = self.machine
        return bool(m.static_cpus and pod["guaranteed"] and m.cpus and cpu > 0 and cpu % 1000 == 0)

    def _wanted_memory(self, pod: dict[str, Any], amounts: dict[str, int]) -> dict[str, int]:
        if not (self.machine.static_memory and pod["guaranteed"]):
            return {}
        return {n: amount for n, amount in amounts.items() if n == "memory" or n.startswith("hugepages-")}

    # ------------------------------------------------------------------ allocation

    def _give_devices(self, container: dict[str, Any], hint: Hint) -> None:
        m = self.machine
        for name in m.devices:
            wanted = container["amounts"].get(name, 0) // 1000
            again = sorted(self.reuse_devices[name])[:wanted]
            if len(again) and container["kind"] != "init":
                self.reuse_devices[name] -= set(again)
            left = wanted - len(again)
            where = m.devices[name]
            room = {z: sum(1 for one in m.free_devices[name] if where[one] == z) for z in m.zones}
            order = sorted(m.zones, key=lambda z: (room[z] < left, room[z], z))
            if hint[0] is not None:
                order = sorted(m.zones, key=lambda z: (z not in hint[0], z))  # type: ignore[operator]
            for zone in order:
                here = sorted(one for one in m.free_devices[name] if where[one] == zone)[:left]
                m.free_devices[name] -= set(here)
                left -= len(here)
                if container["kind"] == "init":
                    self.reuse_devices[name] |= set(here)
            if left:
                raise AdmissionError

    def _give_cpus(self, pod: dict[str, Any], container: dict[str, Any], hint: Hint) -> None:
        m = self.machine
        if not self._exclusive(pod, container["amounts"]):
            return
        wanted = container["amounts"]["cpu"] // 1000
        at_hand = m.free_cpus | self.reuse_cpus
        zones = hint[0] or frozenset()
        aligned = {cpu for cpu in at_hand if m.cpus[cpu] in zones}
        taken = self._pick(aligned, min(wanted, len(aligned)))
        left = wanted - len(taken)
        if left > len(at_hand - taken):
            raise AdmissionError
        taken |= self._pick(at_hand - taken, left)
        m.free_cpus -= taken
        if container["kind"] == "init":
            self.reuse_cpus |= taken
        else:
            self.reuse_cpus -= taken

    def _pick(self, cpus: set[int], wanted: int) -> set[int]:
        """Whole zones, then those with the fewest left; in a zone, what can be used again goes first."""
        m = self.machine
        taken: set[int] = set()
        for zone in m.zones:
            here = {cpu for cpu in cpus if m.cpus[cpu] == zone}
            if (
                here
                and len(here) <= wanted - len(taken)
                and len(here) == sum(z == zone for z in m.cpus.values())
            ):
                taken |= here
        by_room = sorted(m.zones, key=lambda z: (sum(1 for c in cpus if m.cpus[c] == z), z))
        for zone in by_room:
            here = sorted(
                (cpu for cpu in cpus - taken if m.cpus[cpu] == zone),
                key=lambda c: (c not in self.reuse_cpus, c),
            )
            taken |= set(here[: wanted - len(taken)])
        return taken

    def _give_memory(self, pod: dict[str, Any], container: dict[str, Any], hint: Hint) -> None:
        m = self.machine
        wanted = self._wanted_memory(pod, container["amounts"])
        if not wanted:
            return
        zones, preferred = hint
        if zones is None:
            zones, good = self._best(wanted, frozenset())
            if preferred and not good:
                raise AdmissionError
            preferred = good
        if any(sum(m.free_memory.get(n, {}).get(z, 0) for z in zones) < a for n, a in wanted.items()):
            zones, good = self._best(wanted, zones)
            if preferred and not good:
                raise AdmissionError
        if len(zones) > 1 and any(
            m.assignments[z] and (len(m.cells[z]) == 1 or m.cells[z] != zones) for z in zones
        ):
            raise AdmissionError
        for name, amount in sorted(wanted.items()):
            again = self.reuse_memory.get((zones, name), 0)
            left = max(0, amount - again)
            if container["kind"] == "init":
                self.reuse_memory[zones, name] = max(again, amount)
            elif again:
                self.reuse_memory[zones, name] = max(0, again - amount)
            for zone in sorted(zones):
                m.assignments[zone] += 1
                m.cells[zone] = zones
                here = min(left, m.free_memory.get(name, {}).get(zone, 0))
                if here:
                    m.free_memory[name][zone] -= here
                    left -= here

    def _best(self, wanted: dict[str, int], containing: frozenset[int]) -> tuple[frozenset[int], bool]:
        best: tuple[frozenset[int], bool] | None = None
        for zones, preferred in self._memory_hints(wanted):
            assert zones is not None
            if not containing <= zones:
                continue
            if (
                best is None
                or (preferred and not best[1])
                or (preferred == best[1] and narrower(zones, best[0]))
            ):
                best = (zones, preferred)
        if best is None:
            raise AdmissionError
        return best
