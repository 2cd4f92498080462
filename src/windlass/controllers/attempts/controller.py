"""Reconciler of the attempt ledgers of one job kind. Keys are ``namespace/name`` of the job.

The ledger is separate from the controllers of the kinds, so every kind has the same one,
also where another operator runs the kind. A stop between any two writes loses nothing:
the ledger is derived from the stored ledger and the observed pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from windlass.api import annotations as names
from windlass.api.resources import JOB_SETS, PODS
from windlass.api.views import Pod, decode_pod
from windlass.client.informers import Informer
from windlass.controllers.attempts.kinds import AttemptKind
from windlass.controllers.derived_records import DerivedRecords
from windlass.controllers.effects import NOTHING, Effects, Patch, controller_of
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import pods_of
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.attempt_records import ledger_text, read_ledger, read_report
from windlass.jobs.attempts import AttemptPod, JobObservation, advance
from windlass.jobs.members import DISRUPTION_REASONS, OUT_OF_MEMORY
from windlass.kits.clock import Clock
from windlass.kits.timestamps import parse_rfc3339

GONE_SECONDS = 60.0
"""Time (seconds) for which removed pods are kept in memory."""


PODS_PER_SECOND = 2500
"""Maximum number of pods of one job that are looked at per second: a gang of 10,000 every 4 s."""
FEW_PODS = 100
"""Jobs with fewer pods are looked at after every change."""


class AttemptController:
    """Attempt ledgers of one kind."""

    pause_seconds = 0.0

    def __init__(self, kind: AttemptKind, informers: Informers, clock: Clock) -> None:
        self._kind, self._clock = kind, clock
        self.name = f"attempts-{kind.resource.qualified}"
        self._jobs: Informer[StoredObject] = informers.informer(kind.resource, decode=decode_stored_object)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._looked: dict[str, float] = {}
        """Job with many pods → time of the last look (monotonic seconds)."""
        self._gone: dict[str, dict[str, AttemptPod]] = {}
        """Job → uid → pod that was removed lately, as it was seen last."""
        self._route = None if kind.pod_label else pods_of(kind.resource)
        self._pods.add_handler(on_delete=self._remember, route=self._route)
        self._attempt_pods = DerivedRecords(self._pods, _attempt_pod, lambda pod: pod.key, self._route)
        self._pods_of = RecordIndex(self._pods, self._keys_of_pod, lambda pod: pod.key, self._route)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._jobs, lambda job: [job.key]),
            WatchedCollection(self._pods, self._keys_of_pod, _pod_changed, self._route),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def _keys_of_pod(self, pod: Pod) -> Iterable[str]:
        if self._kind.pod_label:
            name = pod.labels.get(self._kind.pod_label)
            return (f"{pod.namespace}/{name}",) if name else ()
        owner = pod.controller
        resource = self._kind.resource
        if owner is None or owner.kind != resource.kind:
            return ()
        if owner.api_version.partition("/")[0] != resource.group:
            return ()
        return (f"{pod.namespace}/{owner.name}",)

    def _is_job(self, uid: str, job: StoredObject) -> bool:
        """Return whether this job controls a pod, and not an earlier one of its name."""
        return bool(self._kind.pod_label) or uid == job.uid

    def _remember(self, pod: Pod) -> None:
        """Keep the last state of a removed pod: its end may not have been recorded yet."""
        now = self._clock.now()
        for key in self._keys_of_pod(pod):
            gone = self._gone.setdefault(key, {})
            seen = _attempt_pod(pod)
            ended = seen.ended or now
            gone[pod.uid] = seen if seen.ended else replace(seen, deleted=now)
            for uid in [
                uid for uid, one in gone.items() if (one.ended or one.deleted) < ended - GONE_SECONDS
            ]:
                del gone[uid]

    def _observed(self, key: str, stored: StoredObject) -> list[AttemptPod]:
        found = (self._attempt_pods.of(pod) for pod in self._pods_of.get(key).values())
        pods = [pod for pod in found if self._is_job(pod.job, stored)]
        present = {pod.uid for pod in pods}
        gone = self._gone.get(key, {}).values()
        return pods + [pod for pod in gone if pod.uid not in present and self._is_job(pod.job, stored)]

    def _wait(self, key: str) -> float:
        """Return how long to wait with the next look at a job of many pods; 0.0: look now."""
        pods = len(self._pods_of.get(key))
        if pods < FEW_PODS:
            return 0.0
        now = self._clock.monotonic()
        wait = self._looked.get(key, -1e9) + pods / PODS_PER_SECOND - now
        if wait <= 0:
            self._looked[key] = now
        return max(0.0, wait)

    async def reconcile(self, key: str) -> Effects:
        stored = self._jobs.items.get(key)
        if stored is None or stored.deleted:
            self._gone.pop(key, None)
            self._looked.pop(key, None)
            return NOTHING
        wait = self._wait(key)
        if wait > 0:
            return Effects(requeue_after=wait)
        obj = stored.object
        if (controller_of(obj) or {}).get("kind") == JOB_SETS.kind:
            return NOTHING  # The JobSet has the ledger.
        metadata = obj["metadata"]
        text = (metadata.get("annotations") or {}).get(names.JOB_ATTEMPTS)
        try:
            minimum = self._kind.minimum(obj)
        except (ValueError, TypeError, KeyError, AttributeError):
            return NOTHING  # The controller of the kind reports the spec.
        end = self._kind.end(obj)
        observed = JobObservation(
            outcome=end.outcome,
            pods=self._observed(key, stored),
            minimum=minimum,
            created=parse_rfc3339(metadata["creationTimestamp"]),
            now=self._clock.now(),
            message=end.message,
            time_limit=end.time_limit,
            signals_disrupt=self._kind.signals_disrupt,
        )
        before = read_ledger(text)
        after = advance(before, observed)
        if after == before or not any(one.started or one.ended for one in after.attempts):
            return NOTHING  # A first attempt in the queue needs no record.
        patch = {"metadata": {"annotations": {names.JOB_ATTEMPTS: ledger_text(after)}}}
        change = Patch(
            self._kind.resource,
            metadata["name"],
            patch,
            metadata.get("namespace"),
            uid=metadata["uid"],  # Nothing else writes the annotation: a newer version is no conflict.
        )
        return Effects(((change,),))


def _attempt_pod(pod: Pod) -> AttemptPod:
    exits = {found.exit_code for found in pod.exits}
    return AttemptPod(
        name=pod.name,
        uid=pod.uid,
        phase=pod.phase or "Pending",
        node=pod.node_name,
        created=pod.created,
        started=(pod.started or pod.created) if pod.phase not in ("", "Pending") else 0.0,
        ended=pod.ended if pod.finished else 0.0,
        exit_code=max(exits) if exits else None,
        reason=OUT_OF_MEMORY if any(found.reason == OUT_OF_MEMORY for found in pod.exits) else pod.reason,
        deleted=pod.deleted,
        disrupted=pod.disrupted or pod.reason in DISRUPTION_REASONS,
        job=pod.controller.uid if pod.controller is not None else "",
        node_lost=names.REQUEUED in pod.annotations,
        restarts=pod.restarts,
        report=read_report(pod.annotations.get(names.CHECKPOINT_REPORT)),
    )


def _pod_changed(old: Pod, new: Pod) -> bool:
    def facts(pod: Pod) -> tuple[object, ...]:
        report = pod.annotations.get(names.CHECKPOINT_REPORT)
        return pod.uid, pod.phase, pod.deleted, pod.ended, pod.disrupted, pod.restarts, pod.reason, report

    return facts(old) != facts(new)
