"""Properties of the ledger under random workers: one output for each item, bounded fairness."""

from __future__ import annotations

import itertools
import random

import pytest

from windlass.items.driver.status import status_of
from windlass.items.ledger.branches import branch_name
from windlass.items.ledger.changes import ItemGroup, ItemResult, ItemState, LedgerEffects
from windlass.items.ledger.core import Ledger
from windlass.items.ledger.groups import ROUND
from windlass.items.ledger.statistics import Rate
from windlass.items.ledger.table import ItemTable
from windlass.items.spec import BatchSpec, SpecError, parse_batch


def batch_of(**spec: object) -> BatchSpec:
    return parse_batch({"metadata": {"name": "job"}, "spec": spec})


def ledger_of(batch: BatchSpec, sizes: list[int], weights: list[float] | None = None) -> Ledger:
    table = ItemTable()
    for group, size in enumerate(sizes):
        for _ in range(size):
            table.add(group, 0, 10)
    records = [ItemGroup(n, f"g{n}", (weights or [1.0] * len(sizes))[n]) for n in range(len(sizes))]
    ids = itertools.count()
    return Ledger(batch, table, records, lambda: f"lease-{next(ids)}")


class Model:
    """Workers that succeed, fail, vanish, answer late and answer twice, and the stored ledger."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        speculative = {"enabled": True, "slowestPercent": 30}
        self.batch = batch_of(
            batching={"size": 8, "mode": self.chance.choice(["Dynamic", "Fixed"])},
            items={
                "retries": 2,
                "infrastructureRetries": 6,
                "retryBackoff": 1,
                "maxFailedPercent": 100,
                "leaseSeconds": 5,
                "speculative": speculative,
            },
        )
        self.ledger = ledger_of(self.batch, [self.chance.randrange(1, 40) for _ in range(4)])
        self.now = 0.0
        self.outputs: dict[int, list[bytes]] = {}
        self.held: list[tuple[str, list[int]]] = []
        self.stored = [(0, 0, 0)] * len(self.ledger.table)
        self.leases: dict[str, object] = {}
        self.instances = itertools.count()
        self.workers = {f"w{n}": f"i{next(self.instances)}" for n in range(4)}

    def store(self, effects: LedgerEffects) -> None:
        for change in effects.items:
            before = self.stored[change.number]
            assert before[0] != ItemState.DONE, "an item that is done changed"
            self.stored[change.number] = (change.state, change.attempts, change.losses)
            if change.state == ItemState.DONE:
                self.outputs.setdefault(change.number, []).append(change.row)
        for lease in effects.leases:
            self.leases[lease.id] = lease
        for name in effects.ended:
            self.leases.pop(name, None)

    def step(self) -> None:
        self.now += self.chance.random() * 2
        worker = self.chance.choice(list(self.workers))
        action = self.chance.choices(
            ("lease", "commit", "beat", "vanish", "give", "restart"), (5, 8, 3, 1, 1, 1)
        )
        getattr(self, action[0])(worker)
        self.check()

    def lease(self, worker: str) -> None:
        lease, effects = self.ledger.lease(worker, self.workers[worker], self.now)
        self.store(effects)
        if lease is not None:
            assert lease.items
            self.held.append((lease.id, list(lease.items)))

    def commit(self, worker: str) -> None:
        if not self.held:
            return
        name, numbers = self.chance.choice(self.held)  # also of leases that are over
        part = numbers[: self.chance.randrange(1, len(numbers) + 1)]
        results = []
        for number in part:
            kind = self.chance.choices(("", "program", "infrastructure"), (8, 1, 1))[0]
            row = b"" if kind else b'{"id":%d}' % number
            results.append(ItemResult(number, row, seconds=0.1, kind=kind))
        effects, _ = self.ledger.commit(name, results, 0.5, self.now)
        self.store(effects)

    def beat(self, worker: str) -> None:
        self.ledger.heartbeat(worker, self.workers[worker], [name for name, _ in self.held], self.now)

    def vanish(self, worker: str) -> None:
        self.workers[worker] = f"i{next(self.instances)}"
        self.store(self.ledger.register(worker, self.workers[worker], self.now))

    def give(self, worker: str) -> None:
        self.store(self.ledger.leave(worker, self.workers[worker], self.now))

    def restart(self, worker: str) -> None:
        """Build a new ledger from what is stored, as a new driver does."""
        table = ItemTable()
        old = self.ledger.table
        for number, (state, attempts, losses) in enumerate(self.stored):
            table.add(old.group[number], 0, 10, 0, state, attempts, losses)
        records = [group.record for group in self.ledger.queues.groups]
        ids = itertools.count()
        prefix = f"r{self.now}"
        self.ledger = Ledger(self.batch, table, records, lambda: f"{prefix}-{next(ids)}")
        for lease in list(self.leases.values()):
            self.ledger.adopt(lease, self.now)  # type: ignore[arg-type]

    def check(self) -> None:
        table = self.ledger.table
        assert sum(table.counts) == len(table)
        leased = {n for lease in self.ledger.leases.values() for n in lease.items}
        assert leased == {n for n in range(len(table)) if table.state[n] == ItemState.LEASED}
        for lease in self.ledger.leases.values():
            assert lease.expires <= self.now + self.batch.items.lease_seconds
        for number in range(len(table)):
            stored = self.stored[number][0]
            assert (table.state[number] >= ItemState.DONE) == (stored >= ItemState.DONE)
        assert all(len(rows) == 1 for rows in self.outputs.values())

    def finish(self) -> None:
        for _ in range(3000):
            if self.ledger.finished:
                return
            self.now += 3
            self.lease("w0")
            for lease in list(self.ledger.leases.values()):
                results = [ItemResult(n, b'{"id":%d}' % n) for n in list(lease.items)]
                self.store(self.ledger.commit(lease.id, results, 0.1, self.now)[0])
            self.check()
        raise AssertionError("the batch does not end")


def test_each_item_has_one_output_or_one_error_in_the_end() -> None:
    for seed in range(40):
        model = Model(seed)
        for _ in range(120):
            model.step()
        model.finish()
        dead = model.ledger.table.counts[ItemState.DEAD]
        assert len(model.outputs) + dead == len(model.ledger.table)


def test_a_lease_expires_once_and_heartbeats_keep_it() -> None:
    ledger = ledger_of(batch_of(items={"leaseSeconds": 10}), [4])
    lease, _ = ledger.lease("w", "i", 0.0)
    assert lease is not None
    assert ledger.heartbeat("w", "i", [lease.id], 9.0) == ([], {})
    assert not ledger.expire(18.9)
    effects = ledger.expire(19.0)
    assert effects.ended == [lease.id]
    assert [change.losses for change in effects.items] == [1] * len(lease.items)
    assert not ledger.expire(60.0)
    assert ledger.heartbeat("w", "i", [lease.id], 60.0)[0] == [lease.id]


def test_items_of_lost_workers_are_leased_alone_and_given_up_in_the_end() -> None:
    items = {"leaseSeconds": 1, "infrastructureRetries": 3, "maxFailedPercent": 100}
    ledger = ledger_of(batch_of(items=items, batching={"mode": "Fixed", "size": 3}), [3])
    sizes = []
    for step in range(30):
        lease, _ = ledger.lease("w", f"i{step}", step * 10.0)
        if lease is None:
            break
        sizes.append(lease.size)
    assert sizes == [3, 3, *[1] * (len(sizes) - 2)]
    assert ledger.table.counts[ItemState.DEAD] == 3
    assert max(ledger.table.losses) == 4


def test_busy_workers_get_neither_suspects_nor_items_of_others() -> None:
    items = {"leaseSeconds": 1, "infrastructureRetries": 3, "maxFailedPercent": 100}
    ledger = ledger_of(batch_of(items=items, batching={"targetSeconds": 60}), [2])
    for step in range(2):
        while ledger.lease("w", f"i{step}", step * 10.0)[0] is not None:
            pass
    assert ledger.lease("w", "i2", 20.0, busy=True)[0] is None
    alone, _ = ledger.lease("w", "i2", 20.0)
    assert alone is not None
    assert (alone.size, alone.alone) == (1, True)
    ledger = ledger_of(batch_of(batching={"mode": "Dynamic", "size": 64, "targetSeconds": 60}), [64])
    ledger.sizes.observe(0, 1, 2.0)
    while ledger.lease("w0", "i0", 0.0)[0] is not None:
        pass
    assert ledger.lease("w1", "i1", 0.0, busy=True)[0] is None
    assert ledger.lease("w1", "i1", 0.0)[0] is not None


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [4.0, 2.0, 1.0]])
def test_groups_share_the_workers_by_weight(weights: list[float]) -> None:
    ledger = ledger_of(batch_of(batching={"size": 32, "targetSeconds": 1}), [4000, 4000, 4000], weights)
    served = [0, 0, 0]
    for step in range(200):
        worker = f"w{step % 8}"
        lease, _ = ledger.lease(worker, worker, step * 0.1)
        assert lease is not None
        served[lease.group] += lease.size
        results = [ItemResult(n, b"{}", seconds=0.02) for n in list(lease.items)]
        ledger.commit(lease.id, results, 0.02 * lease.size, step * 0.1)
        if min(ledger.table.pending) == 0:
            break
        shares = [items / weight for items, weight in zip(served, weights, strict=True)]
        assert max(shares) - min(shares) <= 3 * ROUND
    assert sum(served) > 3000


def test_priority_order_and_parallelism_of_groups() -> None:
    ledger = ledger_of(batch_of(grouping={"order": "Priority"}), [20, 20])
    ledger.queues.groups[1].record.priority = 10
    ledger.queues.groups[1].record.parallelism = 1
    groups = []
    for number in range(3):
        lease, _ = ledger.lease(f"w{number}", "i", 0.0)
        assert lease is not None
        groups.append(lease.group)
    assert groups == [1, 0, 0]


def test_batches_grow_to_the_target_and_shrink_at_the_end() -> None:
    ledger = ledger_of(batch_of(batching={"targetSeconds": 10}), [20_000])
    sizes = []
    now = 0.0
    while (lease := ledger.lease("w", "i", now)[0]) is not None:
        sizes.append(lease.size)
        now += lease.size * 0.05
        results = [ItemResult(n, b"{}") for n in list(lease.items)]
        ledger.commit(lease.id, results, lease.size * 0.05, now)
    assert sizes[:3] == [8, 32, 128]
    assert max(sizes) == 200  # 10 s of 0.05 s each
    assert sizes[-1] == 1
    assert sum(sizes) == 20_000


def test_batches_respect_tokens_and_bytes() -> None:
    for rule, size in (({"maxBytes": 95}, 9), ({"maxTokens": 10}, 4), ({"maxItems": 3}, 3), ({}, 32)):
        ledger = ledger_of(batch_of(batching={"mode": "Fixed", "size": 32, **rule}), [64])
        lease, _ = ledger.lease("w", "i", 0.0)
        assert lease is not None
        assert lease.size == size, rule
    ledger = ledger_of(batch_of(batching={"maxBytes": 5}), [2])
    lease, _ = ledger.lease("w", "i", 0.0)
    assert lease is not None
    assert lease.size == 1  # a row above the limit is a batch of its own


def test_a_worker_without_work_takes_half_of_the_largest_lease() -> None:
    ledger = ledger_of(batch_of(batching={"targetSeconds": 60}), [64])
    ledger.sizes.observe(0, 1, 2.0)
    ledger.sizes._sizes[0] = 64
    lease, _ = ledger.lease("w0", "i0", 0.0)
    assert lease is not None
    second, _ = ledger.lease("w1", "i1", 0.0)
    while second is not None and len(ledger.leases) < 3:
        second, _ = ledger.lease(f"w{len(ledger.leases)}", "i", 0.0)
    held = [n for one in ledger.leases.values() for n in one.items]
    assert sorted(held) == sorted(set(held))
    lost, revoked = ledger.heartbeat("w0", "i0", [lease.id], 1.0)
    assert lost == []
    if lease.size > len(lease.items):
        assert len(revoked[lease.id]) == lease.size - len(lease.items)


def test_the_slowest_items_get_a_second_copy_and_the_first_result_counts() -> None:
    batch = batch_of(items={"speculative": {"enabled": True, "slowestPercent": 50}, "leaseSeconds": 100})
    ledger = ledger_of(batch, [2])
    first, _ = ledger.lease("w0", "i0", 0.0)
    second, _ = ledger.lease("w1", "i1", 0.0)
    assert first is not None
    assert second is not None
    ledger.commit(second.id, [ItemResult(next(iter(second.items)), b"{}")], 0.1, 0.1)
    copy, _ = ledger.lease("w1", "i1", 5.0)
    assert copy is not None
    assert copy.copy
    number = next(iter(copy.items))
    assert number in first.items
    _, accepted = ledger.commit(copy.id, [ItemResult(number, b"{}")], 0.1, 5.1)
    assert accepted == 1
    _, accepted = ledger.commit(first.id, [ItemResult(number, b"{}")], 5.2, 5.2)
    assert accepted == 0
    assert ledger.finished


def test_the_last_batch_is_copied_whatever_its_size() -> None:
    batching = {"mode": "Fixed", "size": 10}
    ledger = ledger_of(batch_of(items={"speculative": {"enabled": True}}, batching=batching), [20])
    first, _ = ledger.lease("w0", "i0", 0.0)
    second, _ = ledger.lease("w1", "i1", 0.0)
    assert first is not None
    assert second is not None
    results = [ItemResult(number, b"{}") for number in second.items]
    ledger.commit(second.id, results[:5], 0.5, 0.5)
    assert ledger.lease("w2", "i2", 5.0)[0] is None  # two batches are left
    ledger.commit(second.id, results[5:], 0.5, 5.0)
    copy, _ = ledger.lease("w1", "i1", 5.5)
    assert copy is not None
    assert (copy.copy, list(copy.items)) == (True, list(first.items))


def test_low_scores_go_to_the_other_model_once() -> None:
    quality = {"min": 90, "onLow": "Branch", "branch": {"model": "big"}}
    batch = batch_of(outputs={"quality": quality}, batching={"mode": "Fixed", "size": 2})
    table = ItemTable()
    for _ in range(2):
        table.add(0, 0, 10)
    ids = itertools.count()
    assert batch.outputs.quality is not None
    groups = [ItemGroup(0, "a"), ItemGroup(1, branch_name(batch.outputs.quality), model="big")]
    ledger = Ledger(batch, table, groups, lambda: f"lease-{next(ids)}")
    first, _ = ledger.lease("w", "i", 0.0)
    assert first is not None
    results = [ItemResult(0, b'{"id":0}', 50.0, 1.0), ItemResult(1, b'{"id":1}', 95.0, 1.0)]
    effects, accepted = ledger.commit(first.id, results, 2.0, 0.0)
    assert (accepted, effects.items[0].state, effects.items[0].group) == (2, ItemState.PENDING, 1)
    assert effects.items[0].attempts == 0
    assert (table.totals, table.remaining, ledger.scores.below) == ([1, 1], [0, 1], 0)
    late, accepted = ledger.commit(first.id, [ItemResult(0, b'{"id":0}', 99.0)], 0.1, 0.0)
    assert (accepted, late.items) == (0, [])  # the first model's answer no longer counts
    second, _ = ledger.lease("w", "i", 0.0)
    assert second is not None
    assert second.group == 1
    effects, _ = ledger.commit(second.id, [ItemResult(0, b'{"id":0}', 60.0, 1.0)], 1.0, 0.0)
    assert (effects.items[0].state, effects.items[0].flag) == (ItemState.DONE, 2)
    assert ledger.finished
    assert status_of(ledger, 0.0, 1.0, True)["quality"] == {"mean": 77.5, "p10": 60.0, "below": 1, "again": 1}
    with pytest.raises(SpecError, match="onLow is Flag"):
        batch_of(outputs={"quality": {"branch": {"model": "big"}}})


def test_finished_rows_without_a_score_are_counted() -> None:
    ledger = ledger_of(batch_of(outputs={"quality": {"min": 90}}), [3])
    lease, _ = ledger.lease("w", "i", 0.0)
    assert lease is not None
    assert "quality" not in status_of(ledger, 0.0, 0.0, False)
    ledger.commit(lease.id, [ItemResult(0, b"{}")], 0.1, 0.0)
    assert status_of(ledger, 0.0, 0.0, False)["quality"] == {"unscored": 1}
    ledger.commit(lease.id, [ItemResult(1, b"{}", 80.0), ItemResult(2, b"{}")], 0.1, 0.0)
    found = status_of(ledger, 0.0, 0.0, False)["quality"]
    assert found == {"mean": 80.0, "p10": 80.0, "below": 1, "unscored": 2}


def test_low_scores_are_flagged_or_redone() -> None:
    for on_low, state in (("Flag", ItemState.DONE), ("Retry", ItemState.PENDING)):
        batch = batch_of(
            outputs={"quality": {"min": 90, "onLow": on_low}}, items={"retries": 1, "retryBackoff": 0}
        )
        ledger = ledger_of(batch, [1])
        for score in (50.0, 60.0):
            lease, _ = ledger.lease("w", "i", 0.0)
            assert lease is not None
            effects, _ = ledger.commit(lease.id, [ItemResult(0, b'{"id":0}', score)], 0.1, 0.0)
            if effects.items[0].state == ItemState.DONE:
                break
            assert effects.items[0].state == state
        assert ledger.table.state[0] == ItemState.DONE
        assert effects.items[0].flag == 1
        assert ledger.scores.below == 1


def test_the_last_error_is_told_while_items_are_to_be_tried_again() -> None:
    ledger = ledger_of(batch_of(items={"retries": 2}), [1])
    for step in range(2):
        lease, _ = ledger.lease("w", "i", 100.0 * step)
        assert lease is not None
        error = ItemResult(0, kind="infrastructure", reason="ServerUnreachable", message="refused")
        ledger.commit(lease.id, [error], 0.1, 100.0 * step + 1)
        found = status_of(ledger, 0.0, 100.0 * step + 2, False)
        assert found["lastError"] == {"reason": "ServerUnreachable", "message": "refused"}
        assert (found["items"]["failed"], found["items"]["deadLetter"]) == (1, 0)


def test_the_rate_is_that_of_the_work_after_a_pause_too() -> None:
    rate = Rate()
    assert rate.per_second(60, 0) == 0
    for start in (100.0, 400.0):  # workers that start late, and go on after a pause
        assert rate.per_second(start, 0) == 0
        for number in range(1, 41):
            rate.add(start + number / 10, 1, 0.1)
            if number in (1, 10, 40):
                assert 2 <= rate.per_second(start + number / 10, 0) <= 11
    assert rate.per_second(404 + 20, 0) == pytest.approx(40 / 24.5, rel=0.05)
