"""Rules of the ledger: leases, results, retries and the end of a batch.

Pure: times are passed in, and each call returns what is to be stored. An item gets at most
one output, whatever is lost, repeated or late: a result counts only while its item has no
end, and all results of a batch pass through one ledger.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from windlass.items.context.gate import SegmentGate
from windlass.items.ledger.branches import branch_of
from windlass.items.ledger.changes import (
    INFRASTRUCTURE,
    PERMANENT,
    Flag,
    ItemChange,
    ItemGroup,
    ItemLease,
    ItemResult,
    ItemState,
    LedgerEffects,
    WorkerRecord,
)
from windlass.items.ledger.failures import SCORER_FAILED, failure_of
from windlass.items.ledger.gathering import Gathering
from windlass.items.ledger.groups import GroupQueue, GroupQueues
from windlass.items.ledger.sizes import BatchSizes
from windlass.items.ledger.start_failures import StartFailures
from windlass.items.ledger.statistics import Latencies, Rate, ScoreHistogram
from windlass.items.ledger.table import ItemTable
from windlass.items.spec import BatchSpec

MAX_BACKOFF_SECONDS = 300.0
"""Maximum delay before an item is tried again (seconds)."""
SUSPECT_LOSSES = 2
"""Number of lost leases after which an item is leased alone, since it may be the cause."""
SLOW_FACTOR = 1.5
"""Age of a lease, as a multiple of its expected seconds, from which on it is copied."""
LOW_QUALITY = "LowQuality"
LEASE_LOST = "LeaseLost"


class Ledger:
    """Items of one batch and their leases."""

    def __init__(
        self,
        batch: BatchSpec,
        table: ItemTable,
        groups: Sequence[ItemGroup],
        new_id: Callable[[], str],
        gate: SegmentGate | None = None,
        unscored: Iterable[int] = (),
    ) -> None:
        """``gate``: items that wait for results of others (``contextCache.mode: Output``).

        ``unscored``: items that were given up because their scorer failed.
        """
        self.batch = batch
        self.table = table
        self.gate = gate
        waiting = gate.waiting if gate is not None else frozenset[int]()
        self.queues = GroupQueues(list(groups), table, batch.grouping.order, waiting)
        self.sizes = BatchSizes(batch.batching)
        self.gathering = Gathering(batch.batching)
        self.leases: dict[str, ItemLease] = {}
        self.workers: dict[str, WorkerRecord] = {}
        self.latencies = Latencies()
        self.rate = Rate()
        quality = batch.outputs.quality
        self.scores = ScoreHistogram(quality.min if quality else 0.0)
        self.failure: tuple[str, str] | None = None
        self.last_error: tuple[str, str] | None = None
        self.trouble: tuple[str, str] | None = None  # what has delayed rows since the last output
        table.reserve(len(self.queues.groups))
        self.branch = branch_of(batch, groups)
        self._new_id = new_id
        self._suspects: deque[int] = deque()
        self._holder: dict[int, list[str]] = {}
        self._invalid = table.invalid()
        self._unscored = set(unscored)
        self._starts = StartFailures()
        self.check_failures()

    # Workers and leases

    def register(self, worker: str, instance: str, now: float) -> LedgerEffects:
        """Record a worker. Leases of an earlier process of the same name are lost at once."""
        effects = LedgerEffects()
        known = self.workers.get(worker)
        if known is None or known.instance != instance:
            self.workers[worker] = WorkerRecord(instance, now)
        else:
            known.seen = now
        for lease in [one for one in self.leases.values() if one.worker == worker]:
            if lease.instance != instance:
                self._lose(lease, now, effects)
        return effects

    def adopt(self, lease: ItemLease, now: float) -> None:
        """Continue a lease that was stored before a restart."""
        open_states = (ItemState.PENDING, ItemState.LEASED)
        lease.items = {n: None for n in lease.items if self.table.state[n] in open_states}
        lease.started, lease.expires = now, now + self.batch.items.lease_seconds
        self.workers.setdefault(lease.worker, WorkerRecord(lease.instance, now, lease.group))
        if lease.items:
            self._hold(lease)

    def lease(
        self, worker: str, instance: str, now: float, *, busy: bool = False
    ) -> tuple[ItemLease | None, LedgerEffects]:
        """Lease the next batch to a worker; ``None`` if nothing is to be done now.

        ``busy``: the worker has items of other leases, so it gets none that must be processed
        alone, and none of other workers.
        """
        effects = self.expire(now)
        record = self.workers.setdefault(worker, WorkerRecord(instance, now))
        record.seen, record.instance = now, instance
        if self.failure is not None or not self.table.open:
            return None, effects
        lease = (None if busy else self._suspect(record, worker, now)) or self._next(record, worker, now)
        if lease is None and not busy:
            lease = self._steal(record, worker, now) or self._copy(record, worker, now)
        if lease is not None:
            record.group = lease.group
            effects.leases.append(lease)
        return lease, effects

    def heartbeat(
        self, worker: str, instance: str, leases: Iterable[str], now: float
    ) -> tuple[list[str], dict[str, list[int]]]:
        """Renew leases. Return those that are lost, and items taken from the others."""
        record = self.workers.setdefault(worker, WorkerRecord(instance, now))
        record.seen, record.instance = now, instance
        lost, revoked = [], {}
        for name in leases:
            lease = self.leases.get(name)
            if lease is None or lease.instance != instance:
                lost.append(name)
                continue
            lease.expires = now + self.batch.items.lease_seconds
            if lease.revoked:
                revoked[name] = sorted(lease.revoked)
                lease.revoked = set()
        return lost, revoked

    def give_back(self, lease_id: str, instance: str, now: float) -> LedgerEffects:
        """Return the unfinished items of a lease, which costs them nothing."""
        effects = LedgerEffects()
        lease = self.leases.get(lease_id)
        if lease is not None and lease.instance == instance:
            self._end(lease, effects)
            for number in lease.items:
                self._release(number, lease)
        return effects

    def leave(self, worker: str, instance: str, now: float) -> LedgerEffects:
        """Return all leases of a worker that ends."""
        effects = LedgerEffects()
        for lease in [one for one in self.leases.values() if one.instance == instance]:
            returned = self.give_back(lease.id, instance, now)
            effects.ended += returned.ended
        record = self.workers.get(worker)
        if record is not None and record.instance == instance:
            del self.workers[worker]
        return effects

    def expire(self, now: float) -> LedgerEffects:
        """End the leases without a heartbeat in time, and release delayed items."""
        effects = LedgerEffects()
        for lease in [one for one in self.leases.values() if one.expires <= now]:
            self._lose(lease, now, effects)
        self.queues.release_due(now)
        return effects

    # Results

    def commit(
        self, lease_id: str, results: Sequence[ItemResult], seconds: float, now: float
    ) -> tuple[LedgerEffects, int]:
        """Record results. Return what is to be stored and the number of results that counted.

        A result of a lease that is lost counts, too, if its item has no end yet.
        """
        effects = LedgerEffects()
        lease = self.leases.get(lease_id)
        accepted = 0
        for result in results:
            number = result.number
            if not 0 <= number < len(self.table) or self.table.state[number] >= ItemState.DONE:
                continue
            if self._is_before_branch(number, lease):
                continue
            if not result.row and (lease is None or number not in lease.items):
                continue
            accepted += 1
            self._unhold(number, effects)
            effects.items.append(self._result(result, now))
        if lease is not None:
            lease.expires = now + self.batch.items.lease_seconds
            if seconds > 0 and results:
                self.sizes.observe(lease.group, len(results), seconds)
        self.check_failures()
        return effects, accepted

    def retry_dead(self, numbers: Iterable[int] | None = None) -> LedgerEffects:
        """Make dead letters pending again with new budgets; all of them without ``numbers``."""
        effects = LedgerEffects()
        chosen = range(len(self.table)) if numbers is None else numbers
        opened: list[int] = []
        for number in chosen:
            if self.table.state[number] != ItemState.DEAD or self.table.length[number] == 0:
                continue
            self.table.attempts[number] = self.table.losses[number] = 0
            self._unscored.discard(number)
            self.table.move(number, ItemState.PENDING)
            opened.append(number)
            effects.items.append(ItemChange(number, ItemState.PENDING, 0, 0))
        for number in opened if self.gate is None else self.gate.reopen(opened):
            self.queues.push(number)
        self.failure = None
        self._starts.clear()
        self.check_failures()
        return effects

    def unblock(self, numbers: Iterable[int]) -> bool:
        """Let items be leased that waited for the stored ends of these; return whether any did."""
        freed = self.gate.end(numbers) if self.gate is not None else ()
        for number in freed:
            if self.table.state[number] == ItemState.PENDING:
                self.queues.push(number)
        return bool(freed)

    @property
    def finished(self) -> bool:
        """Return whether each item has an end, or the batch has failed."""
        return self.failure is not None or self.table.open == 0

    def active_workers(self, now: float) -> int:
        limit = now - 2 * self.batch.items.lease_seconds
        return sum(record.seen >= limit for record in self.workers.values())

    # Details of results

    def _result(self, result: ItemResult, now: float) -> ItemChange:
        if not result.row:
            return self._error(result, now)
        self.trouble = None
        quality = self.batch.outputs.quality
        flag = Flag.NONE
        if quality is not None and not math.isnan(result.score):
            if result.score < quality.min:
                retries = self.table.attempts[result.number] < self.batch.items.retries
                if quality.on_low == "Retry" and retries:
                    result.kind, result.reason = "", LOW_QUALITY
                    result.message = f"score {result.score:g} is below {quality.min:g}"
                    return self._error(result, now)
                if self.branch >= 0 and self.table.group[result.number] != self.branch:
                    return self._process_again(result)
                flag = Flag.BRANCH if quality.on_low == "Branch" else Flag.LOW
            self.scores.add(result.score)
        self.table.move(result.number, ItemState.DONE)
        self.latencies.add(result.seconds)
        self.rate.add(now, 1, result.seconds)
        change = self._change(result.number, ItemState.DONE)
        change.score, change.seconds, change.flag, change.row = result.score, result.seconds, flag, result.row
        return change

    def _is_before_branch(self, number: int, lease: ItemLease | None) -> bool:
        """Return whether a result is of the model before the one that an item is with now."""
        of_branch = self.branch >= 0 and self.table.group[number] == self.branch
        return of_branch and (lease is None or lease.group != self.branch)

    def _process_again(self, result: ItemResult) -> ItemChange:
        """Give an item of low quality to the other model. It costs no attempt."""
        number, quality = result.number, self.batch.outputs.quality
        assert quality is not None
        self.latencies.add(result.seconds)
        self.table.move(number, ItemState.PENDING)
        self.table.regroup(number, self.branch)
        self.queues.push(number)
        change = self._change(number, ItemState.PENDING)
        change.group, change.reason = self.branch, LOW_QUALITY
        change.message = f"score {result.score:g} is below {quality.min:g}"
        return change

    def _error(self, result: ItemResult, now: float) -> ItemChange:
        number, items = result.number, self.batch.items
        if result.kind == INFRASTRUCTURE:
            count = self.table.losses[number] = min(255, self.table.losses[number] + 1)
            over = count > items.infrastructure_retries
        else:
            count = self.table.attempts[number] = min(255, self.table.attempts[number] + 1)
            over = count > items.retries or result.kind == PERMANENT
        if over:
            self.table.move(number, ItemState.DEAD)
            self.unblock((number,))
            self.rate.add(now, 1)
            change = self._change(number, ItemState.DEAD)
            change.row = result.kept
            if result.reason == SCORER_FAILED:
                self._unscored.add(number)
        else:
            self.table.move(number, ItemState.PENDING)
            self.table.count_failure(number, True)
            delay = min(items.retry_backoff * 2 ** (count - 1), MAX_BACKOFF_SECONDS)
            if delay > 0:
                self.queues.delay(number, now + delay)
            else:
                self.queues.push(number)
            change = self._change(number, ItemState.PENDING)
        change.reason, change.message = result.reason or "Error", result.message
        self.last_error = (change.reason, change.message)
        self._starts.add(number, change.reason, change.message)
        return change

    def _change(self, number: int, state: ItemState) -> ItemChange:
        return ItemChange(number, state, self.table.attempts[number], self.table.losses[number])

    def check_failures(self) -> None:
        """Fail the batch if more items were given up than it may lose."""
        dead, total = self.table.counts[ItemState.DEAD], len(self.table)
        percent = self.batch.items.max_failed_percent
        if self.failure is None:
            self.failure = failure_of(dead, len(self._unscored), self._invalid, total, percent)
        if not self.table.counts[ItemState.DONE]:
            self.failure = self._starts.failure(total) or self.failure

    # Details of leases

    def _hold(self, lease: ItemLease) -> None:
        self.leases[lease.id] = lease
        self.queues.groups[lease.group].leases += 1
        for number in lease.items:
            self._holder.setdefault(number, []).append(lease.id)
            if self.table.state[number] == ItemState.PENDING:
                self.table.move(number, ItemState.LEASED)

    def _end(self, lease: ItemLease, effects: LedgerEffects) -> None:
        del self.leases[lease.id]
        self.queues.groups[lease.group].leases -= 1
        effects.ended.append(lease.id)

    def _unhold(self, number: int, effects: LedgerEffects) -> None:
        """Take an item with a result from all leases that have it."""
        for name in self._holder.pop(number, ()):
            lease = self.leases[name]
            lease.items.pop(number, None)
            lease.revoked.add(number)
            if not lease.items:
                self._end(lease, effects)

    def _release(self, number: int, lease: ItemLease) -> bool:
        """Make an item pending if no other lease has it; return whether it is."""
        holders = self._holder.get(number, [])
        if lease.id in holders:
            holders.remove(lease.id)
        if holders:
            return False
        self._holder.pop(number, None)
        self.table.move(number, ItemState.PENDING)
        if self.table.losses[number] >= SUSPECT_LOSSES:
            self._suspects.append(number)
        else:
            self.queues.push(number)
        return True

    def _lose(self, lease: ItemLease, now: float, effects: LedgerEffects) -> None:
        """End a lease that was lost with its worker."""
        self._end(lease, effects)
        budget = self.batch.items.infrastructure_retries
        for number in lease.items:
            count = min(255, self.table.losses[number] + 1)
            self.table.losses[number] = count
            if not self._release(number, lease):
                continue
            change = self._change(number, ItemState.PENDING)
            change.reason, change.message = LEASE_LOST, f"worker {lease.worker} was lost"
            if count > budget:
                self.table.move(number, ItemState.DEAD)
                self.unblock((number,))
                change.state = ItemState.DEAD
                change.message = f"{count} workers were lost while they processed it"
            effects.items.append(change)
        self.check_failures()

    def _new_lease(
        self, record: WorkerRecord, worker: str, group: int, items: Iterable[int], now: float
    ) -> ItemLease:
        numbers = dict.fromkeys(items)
        lease = ItemLease(
            id=self._new_id(),
            worker=worker,
            instance=record.instance,
            group=group,
            items=numbers,
            started=now,
            expires=now + self.batch.items.lease_seconds,
            size=len(numbers),
        )
        self._hold(lease)
        return lease

    def _suspect(self, record: WorkerRecord, worker: str, now: float) -> ItemLease | None:
        while self._suspects:
            number = self._suspects.popleft()
            if self.table.state[number] == ItemState.PENDING:
                lease = self._new_lease(record, worker, self.table.group[number], (number,), now)
                lease.alone = True
                return lease
        return None

    def _next(self, record: WorkerRecord, worker: str, now: float) -> ItemLease | None:
        pending = self.table.counts[ItemState.PENDING]
        if self.gate is not None:  # the few that may be leased are spread over the workers
            pending = -(-(pending - len(self.gate.waiting)) // 4)
        if pending <= 0:
            return None
        self.gathering.until = None
        apart: set[int] = set()
        while (group := self.queues.choose(record.group, apart)) is not None:
            if self.gathering.waits(group, self.table, self._full_size(group, now), now):
                apart.add(group.record.number)
                continue
            items = self._take(group, pending, now)
            if items:
                self.queues.serve(group, len(items))
                return self._new_lease(record, worker, group.record.number, items, now)
        return None

    def _full_size(self, group: GroupQueue, now: float) -> int:
        """Return the items of a full batch, as if all rows that are still to come were there."""
        counts = self.table.counts
        coming = counts[ItemState.PENDING] + counts[ItemState.HELD]
        return self.sizes.items(group.record.number, coming, self.active_workers(now))

    def _take(self, group: GroupQueue, pending: int, now: float) -> list[int]:
        limit = self.sizes.items(group.record.number, pending, self.active_workers(now))
        items: list[int] = []
        size = 0
        for number in group.numbers(self.table):
            length = self.table.length[number]
            if len(items) >= limit or not self.sizes.fits(len(items), size, length):
                group.put_back(number)
                break
            items.append(number)
            self.gathering.leave(number)
            size += length
        return items

    def _steal(self, record: WorkerRecord, worker: str, now: float) -> ItemLease | None:
        """Move the second half of the largest lease to a worker that has nothing to do."""
        if self.table.counts[ItemState.PENDING] or self.batch.batching.mode == "Fixed":
            return None
        others = [one for one in self.leases.values() if one.worker != worker and not one.copy]
        largest = max(others, key=lambda one: self.remaining_seconds(one), default=None)
        if largest is None or len(largest.items) < 2:
            return None
        if self.remaining_seconds(largest) < min(1.0, self.batch.batching.target_seconds / 10):
            return None
        numbers = list(largest.items)
        taken = numbers[(len(numbers) + 1) // 2 :]
        for number in taken:
            del largest.items[number]
            largest.revoked.add(number)
            self._holder[number].remove(largest.id)
        return self._new_lease(record, worker, largest.group, taken, now)

    def remaining_seconds(self, lease: ItemLease) -> float:
        """Return the expected seconds until a lease is done."""
        return len(lease.items) * self.sizes.estimate(lease.group)

    def _copy(self, record: WorkerRecord, worker: str, now: float) -> ItemLease | None:
        """Lease the slowest items a second time: the first result counts."""
        rule = self.batch.items.speculative
        if not rule.enabled or self.table.counts[ItemState.PENDING]:
            return None
        few = rule.slowest_percent * len(self.table) / 100
        slow: ItemLease | None = None
        for one in self.leases.values():
            expected = one.size * self.sizes.estimate(one.group)
            copied = any(len(self._holder.get(number, ())) > 1 for number in one.items)
            if self.table.open > max(few, one.size):  # its batch is not the last one
                continue
            if one.worker == worker or one.copy or copied or now - one.started < SLOW_FACTOR * expected:
                continue
            if slow is None or one.started < slow.started:
                slow = one
        if slow is None:
            return None
        lease = self._new_lease(record, worker, slow.group, slow.items, now)
        lease.copy = True
        return lease
