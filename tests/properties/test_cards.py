"""Invariants of device shares in any history.

Every cycle is checked by ``windlass.engine.invariants``: no device is allocated above
one, none is both shared and whole, and all sums equal the allocations of the tasks.
"""

from __future__ import annotations

import random

import pytest
from cluster_dsl import Cluster
from device_fuzz import PARTS, CardPlayer, start_with_cards
from device_walk import Walk
from engine_fuzz import Op, ops, twin_world
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windlass.engine import device_invariants
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import GroupUpserted, NodeUpserted, TaskUpserted
from windlass.engine.devices.share_table import DeviceFacts, TaskShare
from windlass.engine.devices.whole_device_table import bits
from windlass.engine.engine import Engine
from windlass.engine.groups.entries import OCCUPYING, NextTasks
from windlass.engine.groups.next_step import next_step
from windlass.plugins.defaults import default_plugins
from windlass.spi.devices import DeviceMode, DeviceNeed
from windlass.spi.objects import Device, Node, TaskState

SETTINGS = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def played(history: list[Op], cluster: Cluster | None = None) -> CardPlayer:
    player = CardPlayer(start_with_cards(cluster or Cluster()), PARTS)
    player.play(history)
    return player


@SETTINGS
@given(ops(min_size=8, max_size=20))
def test_invariants_hold_after_any_history(history: list[Op]) -> None:
    played([*history, Op("cycle")])


@SETTINGS
@given(ops(min_size=8, max_size=20))
def test_placing_by_counting_equals_placing_pod_by_pod(history: list[Op]) -> None:
    def decided(countable: bool) -> list[Decision]:
        cluster = Cluster(plugins=default_plugins())
        if not countable:
            cluster.engine.state.plugins.countable = False
        return played(history, cluster).decisions

    assert decided(True) == decided(False)


@SETTINGS
@given(ops(min_size=8, max_size=20), ops(min_size=2, max_size=10))
def test_a_loaded_dump_decides_as_the_original(before: list[Op], after: list[Op]) -> None:
    player = played(before)
    cluster = player.cluster
    copy = Engine.load(cluster.engine.dump(), default_plugins())
    assert copy.dump() == cluster.engine.dump()
    twin = CardPlayer(twin_world(cluster, copy), PARTS)
    twin.number = player.number
    player.decisions.clear()
    follow = [*after, Op("cycle"), Op("cycle")]
    assert twin.play(follow) == player.play(follow)


@SETTINGS
@given(ops(min_size=8, max_size=20))
def test_invariants_hold_where_room_is_made(history: list[Op]) -> None:
    actions = ("allocate", "consolidation", "reclaim", "preempt")
    played([*history, Op("cycle")], Cluster(EngineConfig(actions=actions), default_plugins()))


# ---------------------------------------------------------------------- undo


@SETTINGS
@given(ops(min_size=8, max_size=20), st.integers(0, 10**6))
def test_rollback_restores_the_state(history: list[Op], seed: int) -> None:
    """Any task is evicted and any task is placed, now or later; then all of it is undone."""
    engine, rng = played(history).cluster.engine, random.Random(seed)
    engine.update_groups(10_000.0)
    state, statement, gang_allocator = engine.state, engine._statement, engine._gang_allocator
    before = _everything(engine)
    marks = [statement.checkpoint()]
    for _ in range(12):
        running = [e for e in state.tasks.values() if e.state in OCCUPYING and e.group is not None]
        staying = [e for e in running if e.state is not TaskState.RELEASING]
        waiting = [
            g for g in state.groups.values() if g.pending and g.group is not None and g.queue is not None
        ]
        match rng.randrange(4):
            case 0 if staying:
                statement.evict(rng.choice(staying), "test")
            case 1 | 2 if waiting:
                group = rng.choice(waiting)
                step = next_step(group)
                if isinstance(step, NextTasks):
                    gang_allocator.try_group(statement, group, step, future=rng.random() < 0.5)
            case _:
                if rng.random() < 0.3:
                    statement.rollback(rng.choice([mark for mark in marks if mark <= len(statement)]))
        marks.append(statement.checkpoint())
        assert not _problems_of_cards(engine)
    statement.rollback()
    assert _everything(engine) == before


def _everything(engine: Engine) -> dict[str, object]:
    table, found = engine.state.table, {}
    codes = sorted(table.resources.codes)
    for name, row in sorted(table.rows.items()):
        cards = table.shares.row(row)
        table.shares.sync(row)
        slots = table.devices.rows[row]
        found[name] = (
            {r: table.planes[row, :, table.resources.codes[r]].tolist() for r in codes},
            {at: table.shares.cells[row, slot].tolist() for at, slot in cards.device_set.slots.items()},
            {r: (s.known, s.free, s.taken, s.nominated, dict(s.surplus)) for r, s in slots.items()},
            dict(cards.holders),
            {slot: {k: list(v) for k, v in counts.items()} for slot, counts in cards.tokens.items()},
        )
    tasks = engine.state.tasks.values()
    return {
        **found,
        "": [(e.key, e.state, e.row, e.nominated_row, e.shares, e.nominated_shares, e.masks) for e in tasks],
    }


def _problems_of_cards(engine: Engine) -> list[str]:
    return device_invariants.device_problems(engine, overcommitted=True)


# ---------------------------------------------------------------------- against a plain restatement


@SETTINGS
@given(ops(min_size=8, max_size=20))
def test_counts_are_those_of_a_plain_restatement(history: list[Op]) -> None:
    """Compare with a count by device, from the tasks' allocations, over all placements
    of MIG instances."""
    engine = played([*history, Op("release"), Op("cycle")]).cluster.engine
    state, table = engine.state, engine.state.table
    books = device_invariants.collect_holders(engine)
    for cls in state.classes:
        if len(cls.needs.devices) != 1 or cls.needs.devices[0].count != 1:
            continue
        (need,) = cls.needs.devices
        for name, row in table.rows.items():
            node = table.nodes[row]
            if node is None or table.planes[row, 2:].any() or need.listed in node.allocatable:
                continue
            whole = {(r, i) for e in table.tasks[row].values() for r, mask in e.masks for i in bits(mask)}
            anonymous = not node.devices
            if anonymous:
                continue
            caps = {
                device: _plain_capacity(need, device, books.get((row, device.resource, device.index)), whole)
                for device in node.devices
            }
            budget = {
                r: int(table.planes[row, 0, c] - table.planes[row, 1, c]) // 1000
                for r, c in table.resources.codes.items()
            }
            expected = _within(caps, books, row, budget)
            counted = int(state.classes.allocator.counts([row], cls.needs)[0])
            assert counted == expected if expected is not None else True, (name, need, caps)
            several = state.classes.allocator.counts([row, row], cls.needs).tolist()
            assert several == [counted, counted]


def _within(caps: dict[Device, int], books: dict, row: int, budget: dict[str, int]) -> int | None:
    """Return the sum, if all free devices may be opened; ``None`` otherwise."""
    opened: dict[str, int] = {}
    for device, n in caps.items():
        book = books.get((row, device.resource, device.index))
        if n and (book is None or not book.held) and device.mode is not DeviceMode.SLICED:
            opened[device.resource] = opened.get(device.resource, 0) + 1
    if any(budget.get(resource, 0) < n for resource, n in opened.items()):
        return None
    return sum(caps.values())


def _plain_capacity(need: DeviceNeed, device: Device, book: object, whole: set[tuple[str, int]]) -> int:
    cuts: list[TaskShare] = list(book.held) if book is not None else []  # type: ignore[attr-defined]
    if (
        not device.healthy
        or (device.resource, device.index) in whole
        or need.resource not in ("", device.resource)
    ):
        return 0
    name = device.model.lower()
    if (need.models and not any(m.lower() in name for m in need.models)) or any(
        m.lower() in name for m in need.models_not
    ):
        return 0
    for share in cuts:
        if set(need.carries) & set(share.avoids) or set(need.avoids) & set(share.carries):
            return 0
    shares, slices = [c for c in cuts if not c.profile], [c for c in cuts if c.profile]
    found = 0
    mib = need.memory_mib or device.memory_mib * need.memory_milli // 1000
    prefers_slice = bool(slices) or need.milli == 0 or device.mode is DeviceMode.SLICED
    if not shares and device.mode is not DeviceMode.PLAIN and (need.profile or prefers_slice):
        found = _most_slices(need, mib, DeviceFacts(device), slices)
    if not found and not slices and not need.profile and device.mode is not DeviceMode.SLICED and need.shares:
        if need.whole:
            found = int(not cuts)
        elif mib <= device.memory_mib:
            left = 1000 - sum(c.milli for c in shares), device.memory_mib - sum(c.mib for c in shares)
            options = [had // asked for had, asked in zip(left, (need.milli, mib), strict=True) if asked]
            found = max(0, min(options)) if left[0] > 0 else 0
            if device.slots:
                found = min(found, max(0, device.slots - len(shares)))
    return min(found, 1) if set(need.carries) & set(need.avoids) else found


def _most_slices(need: DeviceNeed, mib: int, card: DeviceFacts, slices: list[TaskShare]) -> int:
    if card.geometry is None or need.whole or (not need.profile and (not need.slices or not mib)):
        return 0
    kinds = {p.name: p for p in card.geometry.profiles}
    most = max(p.sms for p in kinds.values())
    if need.profile:
        wanted = kinds.get(need.profile)
    else:
        fitting = [
            p
            for p in kinds.values()
            if p.memory_mib >= mib and not p.media and p.sms * 1000 >= need.milli * most
        ]
        wanted = min(fitting, key=lambda p: (p.memory_mib, p.compute), default=None)
    if wanted is None:
        return 0
    taken = {at for c in slices for at in range(c.start, c.start + kinds[c.profile].size)}
    compute = card.geometry.compute - sum(kinds[c.profile].compute for c in slices)
    media = 1 - sum(kinds[c.profile].media for c in slices)

    def most_from(taken: frozenset[int], compute: int, media: int) -> int:
        if compute < wanted.compute or media < wanted.media:
            return 0
        places = [frozenset(range(s, s + wanted.size)) for s in wanted.starts]
        tries = [
            1 + most_from(taken | p, compute - wanted.compute, media - wanted.media)
            for p in places
            if not p & taken
        ]
        return max(tries, default=0)

    return most_from(frozenset(taken), compute, media)


def test_a_node_without_cards_has_none() -> None:
    cluster = Cluster().queues("default").nodes(Node("n", {"cpu": 8000, "pods": 10}))
    cluster.gang("g", 1, PARTS[0])
    cluster.cycle()
    assert cluster.placed("g") == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_random_walk_over_device_accounting(seed: int) -> None:
    """Run a short walk; ``make cards`` runs a million steps."""
    walk = Walk(seed)
    walk.run(1_500)
    assert walk.placed > 200


@SETTINGS
@given(ops(min_size=8, max_size=20))
def test_incremental_accounting_equals_rebuilt(history: list[Op]) -> None:
    """A new engine gets the present state, tasks before nodes, in another order.

    Devices of the nodes do not change, and no pod requests devices of any resource:
    indices do not distinguish those.
    """
    named = tuple(needs for needs in PARTS if all(need.resource for need in needs.devices))
    player = CardPlayer(start_with_cards(Cluster()), named)
    player.play([op for op in history if op.kind not in ("node", "drop_node")])
    cluster = player.cluster
    cluster.confirm()
    fresh = Cluster()
    engine = fresh.engine
    engine.apply([TaskUpserted(task) for task in reversed(cluster.tasks.values())])
    engine.apply([GroupUpserted(group) for group in cluster.groups.values()])
    engine.apply([NodeUpserted(node) for node in reversed(cluster.node_specs.values())])
    waiting = {e.key for e in cluster.engine.state.tasks.values() if e.nominated_row >= 0}
    if waiting:
        return  # promises are the engine's own
    assert _held(engine, cluster) == _held(cluster.engine, cluster)


def _held(engine: Engine, cluster: Cluster) -> dict[str, object]:
    table, found = engine.state.table, {}
    for name, spec in sorted(cluster.node_specs.items()):
        row = table.rows[name]
        cards = table.shares.row(row)
        codes = table.resources.codes
        found[name] = (
            {r: table.planes[row, :3, codes[r]].tolist() for r in sorted({d.resource for d in spec.devices})},
            {
                at: cells
                for at, slot in sorted(cards.device_set.slots.items())
                if any(cells := table.shares.cells[row, slot, :14].tolist())
            },
            {r: slots.taken for r, slots in sorted(table.devices.rows[row].items()) if slots.taken},
        )
    return found
