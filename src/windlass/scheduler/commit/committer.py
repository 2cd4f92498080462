"""Committer: hands the binds and evictions of a decision over to their background tasks."""

from __future__ import annotations

from windlass.engine import deltas
from windlass.engine.decision import Decision
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.scheduler.commit.binder import Binder
from windlass.scheduler.commit.displacements import Displacements
from windlass.scheduler.commit.eviction_record import EvictionRecords
from windlass.scheduler.commit.evictor import Evictor
from windlass.scheduler.commit.pre_bind import PreBind
from windlass.scheduler.status.status_writer import StatusWriter
from windlass.scheduler.steady_time import SteadyTime


class Committer:
    """Commits decisions, and continues those of an earlier leader.

    ``inbox``: deltas of the next cycle.
    """

    def __init__(
        self,
        model: ClusterModel,
        pre_bind: PreBind,
        binder: Binder,
        eviction_records: EvictionRecords,
        displacements: Displacements,
        evictor: Evictor,
        status_writer: StatusWriter,
        inbox: list[deltas.Delta],
        *,
        time: SteadyTime,
    ) -> None:
        self._model = model
        self._pre_bind = pre_bind
        self._binder = binder
        self._eviction_records = eviction_records
        self._displacements = displacements
        self._evictor = evictor
        self._status_writer = status_writer
        self._inbox = inbox
        self._time = time

    def commit(self, decision: Decision) -> None:
        """Submit the binds and evictions of a decision."""
        if decision.binds:
            self._binder.submit(self._pre_bind.batches(decision.binds, self._time.now()))
        for orders, write in self._eviction_records.orders(decision.evictions):
            self._evictor.submit_together(orders, write)
        for write in self._displacements.of_preemptors(decision.evictions):
            self._evictor.submit_together((), write)

    def take_over(self, changes: list[deltas.Delta]) -> list[deltas.Delta]:
        """Continue what an earlier leader had started.

        Returns ``changes``, the first deltas for the engine, with the continued binds.
        """
        self._status_writer.review()
        resumed = self._pre_bind.resumed(self._time.now())
        if resumed:
            changes = self._model.resume(resumed, changes)
            self._binder.submit(self._pre_bind.batches(resumed, self._time.now(), reserve=False))
        for orders in self._eviction_records.unfinished():
            self._evictor.submit_together(orders, None)
            self._inbox.extend(deltas.EvictionBegun(order.key, order.uid) for order in orders)
        return changes
