"""Learned run times: pods that end well teach them, groups whose owners say nothing are given them.

What was learned is kept in the ConfigMap ``windlass-run-times`` in Windlass' own namespace, read before anything is
decided and written at most every minute; what time-sharing has counted (:mod:`.sharecounts`) beside it. It is an aid,
not a record: where it cannot be read or written the scheduler goes without.

Invariant: what could not be read is not written over; it is read later, and what was learned meanwhile added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.engine import deltas
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.run_time_traits import foretold, shape_in, shape_of, traits_of
from windlass.observe import logs
from windlass.plugins.timeshare.suspension_cost import work_seconds
from windlass.predict.history import History, HistoryRecord
from windlass.predict.model import CompletedRun, Traits
from windlass.scheduler.estimates.time_share_counts import KEY as COUNTS
from windlass.scheduler.estimates.time_share_counts import TimeShareCounts
from windlass.scheduler.options import OWN_NAMESPACE
from windlass.spi.configuration import LEARNED, SchedulerConfig
from windlass.spi.objects import Group

NAME = "windlass-run-times"
KEY = "history"
ABOUT = "kubernetes.io/description"
SAVE_SECONDS = 60.0
log = logs.get("scheduler")


def learns(policy: SchedulerConfig) -> bool:
    """Whether run times are learned: as the configuration says; with tiers (Volcano's way) only if it does."""
    said = policy.configurations.get("backfill", {}).get(LEARNED)
    return not policy.tiers if said is None else str(said).lower() == "true"


class LearnedRunTimes:
    """What one scheduler has learned. ``enabled``: whether it learns and tells anything."""

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        *,
        clock: Clock,
        counts: TimeShareCounts,
        enabled: bool = True,
        namespace: str = OWN_NAMESPACE,
        ended: Callable[[str, str], None] | None = None,
    ) -> None:
        """``namespace``: where the ConfigMap lies. ``ended`` is told of every group that ends well: on whose word its
        run time rested, and how true that was (see :meth:`_judge`)."""
        self.history = History()
        self.counts = counts
        self.enabled = enabled
        self._client = client
        self._model = model
        self._clock = clock
        self._namespace = namespace
        self._ended = ended
        self._saved = 0
        self._unread: list[CompletedRun] | None = None
        """What was learned since the ConfigMap could not be read; ``None``: it was read."""
        self._complained = False
        self._shapeless: set[str] = set()
        """Groups of which the engine was told before any of their pods was known."""

    # ------------------------------------------------------------------ learning

    def pod(self, old: views.Pod | None, new: views.Pod | None) -> None:
        """A pod has changed: one that has just ended well has run for so long."""
        if not self.enabled or old is None or new is None or new.phase != "Succeeded" or old.finished:
            return
        key = self._model.group_of(new.key)
        group = self._model.group_sent(key) if key is not None else None
        end = new.ended or self._clock.now()
        if group is None or not new.started or end <= new.started:
            return
        work, seconds = group.uid or group.key, work_seconds(group, new.started, end)
        if self._ended is not None and not self.history.knows(work):
            self._ended(*self._judge(group, traits_of(group, shape_of(new)), seconds))
        run = CompletedRun(work, traits_of(group, shape_of(new)), seconds)
        self.history.observe(run)
        if self._unread is not None:
            self._unread.append(run)

    def _judge(self, group: Group, traits: Traits, seconds: float) -> tuple[str, str]:
        """What was expected, just before the first of its pods has ended: by whom, and ``within`` its bounds, ``early``
        (shorter than the 0.1-quantile), ``late`` (longer than what is reckoned with), or ``unknown``."""
        if group.run_estimate is not None:
            return "owner", "within" if seconds <= group.run_estimate else "late"
        found = self.history.predict(traits)
        if found is None:
            return "none", "unknown"
        if seconds > found.seconds:
            return "learned", "late"
        return "learned", "early" if seconds < found.quantiles[0.1] else "within"

    # ------------------------------------------------------------------ telling

    def filled(self, changes: Iterable[deltas.Delta]) -> list[deltas.Delta]:
        """The deltas that the model has just given, with what was learned where the owner of a group says nothing. Of
        a group whose first pod comes after it the engine is told anew: what it asks for is known only then."""
        out: list[deltas.Delta] = []
        for delta in changes:
            if type(delta) is deltas.TaskUpserted:
                out.append(delta)
                if self._shapeless and delta.task.group in self._shapeless:
                    self._shapeless.discard(delta.task.group)
                    known = self._model.group_sent(delta.task.group)
                    out += [] if known is None else [self.with_learned(deltas.GroupUpserted(known))]
                continue
            out.append(self.with_learned(delta))
            if type(delta) is deltas.GroupUpserted:
                if self.enabled and next(self._model.pods_of(delta.group.key), None) is None:
                    self._shapeless.add(delta.group.key)
            elif type(delta) is deltas.GroupRemoved:
                self._shapeless.discard(delta.key)
        return out

    def with_learned(self, delta: deltas.Delta) -> deltas.Delta:
        """The delta, with what was learned of its group."""
        if not self.enabled or self.history.empty or type(delta) is not deltas.GroupUpserted:
            return delta
        group = foretold(delta.group, self.history, shape_in(self._model, delta.group.key))
        return delta if group is delta.group else deltas.GroupUpserted(group)

    def groups(self) -> dict[str, Group]:
        """All groups of which the engine was told, with what was learned of them."""
        known = self._model.told_groups()
        if not self.enabled or self.history.empty:
            return known
        return {
            key: foretold(group, self.history, shape_in(self._model, key)) for key, group in known.items()
        }

    def corrections(self) -> list[deltas.Delta]:
        """The groups of which something is known that their owners did not say."""
        known = self._model.told_groups()
        return [
            deltas.GroupUpserted(group) for key, group in self.groups().items() if group is not known[key]
        ]

    # ------------------------------------------------------------------ kept across restarts

    async def load(self) -> None:
        """Take up what was known before."""
        try:
            found = await self._client.find(resources.CONFIG_MAPS, NAME, self._namespace)
        except (StatusError, Unreachable) as error:
            if self._unread is None:
                log.warning("learned run times not read", why=error.message)
                self._unread = []
            return
        unread, self._unread = self._unread or [], None
        data = (found or {}).get("data") or {}
        if data.get(COUNTS):
            self.counts.take(data[COUNTS])
        text = data.get(KEY)
        if not text:
            return
        try:
            self.history = History.of_record(msgspec.json.decode(text, type=HistoryRecord))
        except msgspec.MsgspecError as error:
            log.warning("learned run times not understood", why=str(error))
            return
        self._saved = self.history.version
        for run in unread:
            self.history.observe(run)

    async def run(self) -> None:
        """Write down what is new, until cancelled."""
        while True:
            await self._clock.sleep(SAVE_SECONDS)
            if self._unread is not None:
                await self.load()
            if self._unread is None and (data := self._news()):
                await self._save(data)

    def _news(self) -> dict[str, str]:
        """What is to be written."""
        data: dict[str, str] = {}
        if self.enabled and self.history.version != self._saved:
            data[KEY] = msgspec.json.encode(self.history.as_record()).decode()
        if self.counts.news and (text := self.counts.text()) is not None:
            data[COUNTS] = text
        return data

    async def _save(self, data: dict[str, str]) -> None:
        version, counted = self.history.version, self.counts.counted
        try:
            found = await self._client.find(resources.CONFIG_MAPS, NAME, self._namespace)
            if found is None:
                await self._client.create(
                    resources.CONFIG_MAPS, _object(data, self._namespace), self._namespace
                )
            else:
                await self._client.patch(resources.CONFIG_MAPS, NAME, {"data": data}, self._namespace)
        except (StatusError, Unreachable) as error:
            if not self._complained:
                log.warning("learned run times not written", why=error.message)
            self._complained = True
            return
        self._complained = False
        if KEY in data:
            self._saved = version
        if COUNTS in data:
            self.counts.saved(counted)


def _object(data: dict[str, str], namespace: str) -> dict[str, Any]:
    about = "Run times of work that has ended, by which the scheduler estimates others; safe to delete."
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace, "annotations": {ABOUT: about}},
        "data": data,
    }
