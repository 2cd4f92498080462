"""Learned run times: successful pods are observed, and groups without an estimate get one.

The history is stored in the ConfigMap ``windlass-run-times`` in Windlass' namespace. It
is read before anything is decided, and written at most every minute. The counters of
time-sharing (:mod:`windlass.scheduler.estimates.time_share_counts`) are stored with it.
Both are an aid: if the ConfigMap cannot be read or written, the scheduler works
without.

Invariant: a history that could not be read is not overwritten. It is read later, and
what was learned meanwhile is added to it.
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
from windlass.model.cluster.run_time_traits import predicted_group, shape_in, shape_of, traits_of
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
"""Interval in seconds between writes of the history."""
log = logs.get("scheduler")


def learns(policy: SchedulerConfig) -> bool:
    """Return whether a policy learns run times.

    The default is true without tiers. With tiers (Volcano's format) it must be
    configured.
    """
    configured = policy.configurations.get("backfill", {}).get(LEARNED)
    return not policy.tiers if configured is None else str(configured).lower() == "true"


class LearnedRunTimes:
    """Learns run times, and adds estimates to groups.

    ``enabled``: whether it does either.
    ``namespace``: that of the ConfigMap.
    ``finished(source, result)``: called with every group that finishes successfully,
    see :meth:`_compare`.
    """

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        *,
        clock: Clock,
        counts: TimeShareCounts,
        enabled: bool = True,
        namespace: str = OWN_NAMESPACE,
        finished: Callable[[str, str], None] | None = None,
    ) -> None:
        self.history = History()
        self.counts = counts
        self.enabled = enabled
        self._client = client
        self._model = model
        self._clock = clock
        self._namespace = namespace
        self._finished = finished
        self._saved_version = 0
        self._unread: list[CompletedRun] | None = None
        """Runs learned since the ConfigMap could not be read. ``None``: it was read."""
        self._warned = False
        self._without_pods: set[str] = set()
        """Groups given to the engine before any of their pods was known."""

    def use_policy(self, policy: SchedulerConfig) -> None:
        """Take in another policy."""
        self.enabled = learns(policy)

    # ------------------------------------------------------------------ learning

    def pod_changed(self, old: views.Pod | None, new: views.Pod | None) -> None:
        """Learn from a pod that has just finished successfully."""
        if not self.enabled or old is None or new is None or new.phase != "Succeeded" or old.finished:
            return
        key = self._model.groups.group_of(new.key)
        group = self._model.group_sent(key) if key is not None else None
        end = new.ended or self._clock.now()
        if group is None or not new.started or end <= new.started:
            return
        work, seconds = group.uid or group.key, work_seconds(group, new.started, end)
        traits = traits_of(group, shape_of(new))
        if self._finished is not None and not self.history.knows(work):
            self._finished(*self._compare(group, traits, seconds))
        run = CompletedRun(work, traits, seconds)
        self.history.observe(run)
        if self._unread is not None:
            self._unread.append(run)

    def _compare(self, group: Group, traits: Traits, seconds: float) -> tuple[str, str]:
        """Return the source of an estimate, and how the true run time compares with it.

        The source is ``owner``, ``learned`` or ``none``. The result is ``within`` the
        bounds, ``early`` (shorter than the 0.1-quantile), ``late`` (longer than
        estimated) or ``unknown``.
        """
        if group.run_estimate is not None:
            return "owner", "within" if seconds <= group.run_estimate else "late"
        prediction = self.history.predict(traits)
        if prediction is None:
            return "none", "unknown"
        if seconds > prediction.seconds:
            return "learned", "late"
        return "learned", "early" if seconds < prediction.quantiles[0.1] else "within"

    # ------------------------------------------------------------------ estimates

    def filled(self, changes: Iterable[deltas.Delta]) -> list[deltas.Delta]:
        """Return deltas of the model, with estimates for groups without one.

        A group without pods is repeated after its first pod, since its requests are
        known only then.
        """
        filled: list[deltas.Delta] = []
        for delta in changes:
            if type(delta) is deltas.TaskUpserted:
                filled.append(delta)
                if self._without_pods and delta.task.group in self._without_pods:
                    self._without_pods.discard(delta.task.group)
                    group = self._model.group_sent(delta.task.group)
                    filled += [] if group is None else [self.with_estimate(deltas.GroupUpserted(group))]
                continue
            filled.append(self.with_estimate(delta))
            if type(delta) is deltas.GroupUpserted:
                if self.enabled and next(self._model.groups.pods_of(delta.group.key), None) is None:
                    self._without_pods.add(delta.group.key)
            elif type(delta) is deltas.GroupRemoved:
                self._without_pods.discard(delta.key)
        return filled

    def with_estimate(self, delta: deltas.Delta) -> deltas.Delta:
        """Return a delta with the learned estimate of its group, if any."""
        if not self.enabled or self.history.empty or type(delta) is not deltas.GroupUpserted:
            return delta
        group = predicted_group(delta.group, self.history, shape_in(self._model.groups, delta.group.key))
        return delta if group is delta.group else deltas.GroupUpserted(group)

    def groups(self) -> dict[str, Group]:
        """Return all groups that the engine knows, with their learned estimates."""
        known = self._model.sent_groups()
        if not self.enabled or self.history.empty:
            return known
        return {
            key: predicted_group(group, self.history, shape_in(self._model.groups, key))
            for key, group in known.items()
        }

    def corrections(self) -> list[deltas.Delta]:
        """Return deltas for the groups that have a learned estimate."""
        known = self._model.sent_groups()
        return [
            deltas.GroupUpserted(group) for key, group in self.groups().items() if group is not known[key]
        ]

    # ------------------------------------------------------------------ storage

    async def load(self) -> None:
        """Read the stored history."""
        try:
            stored = await self._client.find(resources.CONFIG_MAPS, NAME, self._namespace)
        except (StatusError, Unreachable) as error:
            if self._unread is None:
                log.warning("learned run times not read", why=error.message)
                self._unread = []
            return
        unread, self._unread = self._unread or [], None
        data = (stored or {}).get("data") or {}
        if data.get(COUNTS):
            self.counts.resume(data[COUNTS])
        text = data.get(KEY)
        if not text:
            return
        try:
            self.history = History.of_record(msgspec.json.decode(text, type=HistoryRecord))
        except msgspec.MsgspecError as error:
            log.warning("ignoring stored run times: invalid record", why=str(error))
            return
        self._saved_version = self.history.version
        for run in unread:
            self.history.observe(run)

    async def run(self) -> None:
        """Store what is new, until cancelled."""
        while True:
            await self._clock.sleep(SAVE_SECONDS)
            if self._unread is not None:
                await self.load()
            if self._unread is None and (data := self._unsaved()):
                await self._save(data)

    def _unsaved(self) -> dict[str, str]:
        """Return the data to write."""
        data: dict[str, str] = {}
        if self.enabled and self.history.version != self._saved_version:
            data[KEY] = msgspec.json.encode(self.history.as_record()).decode()
        if self.counts.changed and (text := self.counts.text()) is not None:
            data[COUNTS] = text
        return data

    async def _save(self, data: dict[str, str]) -> None:
        version, total = self.history.version, self.counts.total
        try:
            stored = await self._client.find(resources.CONFIG_MAPS, NAME, self._namespace)
            if stored is None:
                await self._client.create(
                    resources.CONFIG_MAPS, _config_map(data, self._namespace), self._namespace
                )
            else:
                await self._client.patch(resources.CONFIG_MAPS, NAME, {"data": data}, self._namespace)
        except (StatusError, Unreachable) as error:
            if not self._warned:
                log.warning("learned run times not written", why=error.message)
            self._warned = True
            return
        self._warned = False
        if KEY in data:
            self._saved_version = version
        if COUNTS in data:
            self.counts.saved(total)


def _config_map(data: dict[str, str], namespace: str) -> dict[str, Any]:
    about = "Run times of finished groups, by which the scheduler estimates others; safe to delete."
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace, "annotations": {ABOUT: about}},
        "data": data,
    }
