"""A long random walk over the books of cards: pods come, are asked to go, stay after all, leave, are promised
parts and get them, cards fall ill and get well. After every step the row that it touched is looked at by a
plain restatement that knows nothing of the engine's tables.

``make cards`` is the long run; ``make test`` has a short one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import replace

import numpy as np
from cluster_dsl import Cluster
from device_fuzz import PARTS, carded

from windlass.engine import device_invariants
from windlass.engine.device_invariants import DeviceHolders, share_problems
from windlass.engine.devices.share_table import (
    HELD_SIDE,
    NOMINATED_SIDE,
    RELEASING_SIDE,
    DeviceFacts,
    TaskShares,
)
from windlass.engine.devices.whole_device_table import WHOLE, bits
from windlass.engine.groups.entries import TaskEntry
from windlass.spi.objects import TaskState

FULL = 20_000
"""After so many steps all that the engine keeps is compared with the tasks."""


class Walk:
    def __init__(self, seed: int, tasks: int = 4) -> None:
        """``tasks``: of each class."""
        self.rng = random.Random(seed)
        self.cluster = Cluster().queues("default")
        for i in range(7):
            self.cluster.nodes(carded(i, i))
        for at, needs in enumerate(PARTS):
            self.cluster.gang(f"g{at}", tasks, needs)
        self.cluster.engine.update_groups(0.0)
        self.state = self.cluster.engine.state
        self.entries = list(self.state.tasks.values())
        self.rows = [self.state.table.rows[name] for name in sorted(self.cluster.node_specs)]
        self.placed = self.refused = self.promised = 0

    def run(self, steps: int) -> None:
        """Raises ``AssertionError`` at the first step after which anything is wrong."""
        for number in range(1, steps + 1):
            row = self._step()
            self._look(row)
            if number % FULL == 0 or number == steps:
                problems = device_invariants.device_problems(self.cluster.engine, overcommitted=False)
                assert not problems, problems[:5]

    # ------------------------------------------------------------------ steps

    def _step(self) -> int:
        entry = self.rng.choice(self.entries)
        match entry.state:
            case TaskState.PENDING if entry.nominated_row >= 0:
                return self._promised(entry)
            case TaskState.PENDING:
                return self._pending(entry)
            case TaskState.ASSUMED if self.rng.random() < 0.5:
                self.state.ledger.change_state(entry, TaskState.RELEASING)
            case TaskState.RELEASING if self.rng.random() < 0.3:
                self.state.ledger.change_state(entry, TaskState.ASSUMED)
            case _:
                row = entry.row
                self.state.ledger.vacate(entry, TaskState.PENDING)
                return row
        return entry.row

    def _pending(self, entry: TaskEntry) -> int:
        if self.rng.random() < 0.02:
            return self._sick()
        row, cls = self.rng.choice(self.rows), entry.cls
        cls.refresh()
        open_to = [one for one in self.rows if cls.count[one] > 0]
        if open_to and self.rng.random() < 0.8:
            row = self.rng.choice(open_to)
        if cls.count[row] > 0:
            assert entry.group is not None
            self.state.ledger.assume(entry.group, cls, row, (entry,))
            self.placed += 1
        elif self.rng.random() < 0.2 and cls.future(np.array([row], dtype=np.int64))[0][0] > 0:
            self.state.ledger.nominate(entry, row)
            self.promised += 1
        else:
            self.refused += 1
        return row

    def _promised(self, entry: TaskEntry) -> int:
        """It has what it is promised if that is free by now; or gives it up."""
        ledger, row = self.state.ledger, entry.nominated_row
        cuts = ledger.remove_nomination(entry)
        if self.rng.random() < 0.8:
            entry.cls.refresh()
            if entry.cls.count[row] > 0 and entry.group is not None:
                kept = cuts if cuts and ledger.allocator.are_available(row, cuts) else None
                ledger.assume(entry.group, entry.cls, row, (entry,), kept)
            else:
                ledger.restore_nomination(entry, row, cuts)
        return row

    def _sick(self) -> int:
        name = self.rng.choice(sorted(self.cluster.node_specs))
        spec = self.cluster.node_specs[name]
        if spec.devices:
            devices = list(spec.devices)
            at = self.rng.randrange(len(devices))
            devices[at] = replace(devices[at], healthy=not devices[at].healthy)
            self.cluster.nodes(replace(spec, devices=tuple(devices)))
        return self.state.table.rows[name]

    # ------------------------------------------------------------------ the restatement

    def _look(self, row: int) -> None:
        table = self.state.table
        node = table.nodes[row]
        assert node is not None
        books: dict[tuple[str, int], DeviceHolders] = {}
        whole: dict[tuple[str, int], int] = {}
        listed = [0, 0, 0]
        for side, cuts in self._parts(row):
            for share in cuts:
                if share.index < 0:
                    listed[side] += share.milli
                else:
                    books.setdefault((share.resource, share.index), DeviceHolders()).sides()[side].append(
                        share
                    )
        for entry in table.tasks[row].values():
            for resource, mask in entry.masks:
                for index in bits(mask):
                    whole[resource, index] = whole.get((resource, index), 0) + 1
        for device in node.devices:
            at = (device.resource, device.index)
            problems = share_problems(
                DeviceFacts(device), books.get(at, DeviceHolders()).held, whole.get(at, 0)
            )
            assert not problems, (node.name, at, problems)
        for resource in {device.resource for device in node.devices}:
            used = sum(
                DeviceFacts(d).counted
                and bool(
                    books.get((resource, d.index), DeviceHolders()).held or whole.get((resource, d.index))
                )
                for d in node.devices
                if d.resource == resource
            )
            column = table.resources.codes[resource]
            assert table.planes[row, 1, column] == used * WHOLE, (node.name, resource, used)
            assert used * WHOLE <= table.planes[row, 0, column], (node.name, resource, used)

    def _parts(self, row: int) -> list[tuple[int, TaskShares]]:
        found: list[tuple[int, TaskShares]] = []
        for entry in self.state.table.tasks[row].values():
            found.append((HELD_SIDE, entry.shares))
            if entry.state is TaskState.RELEASING:
                found.append((RELEASING_SIDE, entry.shares))
        found += [
            (NOMINATED_SIDE, entry.nominated_shares) for entry in self.entries if entry.nominated_row == row
        ]
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    walk, began = Walk(options.seed), time.perf_counter()
    walk.run(options.steps)
    seconds = time.perf_counter() - began
    print(
        f"{options.steps} steps in {seconds:.0f} s: {walk.placed} placed, {walk.promised} promised, "
        f"{walk.refused} refused; no card above one, none both shared and whole"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
