"""Restart of one pod's containers together with those of the other pods of its JobSet."""

from __future__ import annotations

import logging

from windlass.api.errors import StatusError
from windlass.api.fields import jobset
from windlass.api.resources import PODS
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.kits.clock import Clock
from windlass.node.lifecycle.events import PodEvent, PodEventKind
from windlass.node.lifecycle.restart_rules import RestartTogether, attempt_of
from windlass.node.lifecycle.transitions import PodStep
from windlass.node.pods.worker import PodWorker
from windlass.node.restart_barriers import Barrier, RestartBarriers

_RETRY_SECONDS = 1.0
_log = logging.getLogger("windlass.node")


class InPlaceRestarts:
    """Participation of one pod in the restarts of its JobSet. Call :meth:`run`.

    The attempt is in the pod's record, too: the annotation that the next agent sees first
    may be an old one.
    """

    def __init__(self, worker: PodWorker, barriers: RestartBarriers, client: Client, clock: Clock) -> None:
        self._worker, self._barriers, self._client, self._clock = worker, barriers, client, clock
        self._machine = worker.machine
        self._key = f"{worker.pod['metadata']['namespace']}/{self._machine.job_set}"
        self._attempt: int | None = None
        self._passed: int | None = None
        """Attempt at which the pod ran last."""
        self._reported: RestartTogether | None = None
        """Wait of the pod for which the attempt was written."""

    async def run(self) -> None:
        """Take part until the pod has ended."""
        with self._barriers.changes(self._key) as changed:
            self._worker.on_join = changed.set
            reported = self._machine.together.reported
            self._attempt = attempt_of(self._worker.pod) if reported is None else reported
            while not self._machine.is_over:
                changed.clear()
                barrier = self._barriers.get(self._key)
                if barrier is not None and self._machine.step in (PodStep.INITIALIZING, PodStep.RUNNING):
                    await self._follow(barrier)
                await changed.wait()

    async def _follow(self, barrier: Barrier) -> None:
        together = self._machine.together
        if together.lifted and self._attempt is not None:
            self._passed, self._reported = self._attempt, together
        elif together.joined and self._reported is not together and not barrier.bypassed:
            attempt = together.reported  # of an earlier agent, which waited for the same start
            if attempt is None:
                attempt = barrier.next_attempt(self._passed)
                if not await self._report(attempt):
                    return
                together.reported = attempt
                self._worker.write_record()
            self._attempt, self._reported = attempt, together
            barrier = self._barriers.get(self._key) or barrier
            together = self._machine.together
        if not together.joined or together.stopping:
            return
        if self._attempt is not None and barrier.is_outdated(self._attempt):
            text = (
                f"restarting all containers of the pod in place with those of JobSet {self._machine.job_set}"
            )
            self._send(PodEventKind.RESTART_ALL, text)
        elif not together.lifted and barrier.is_open(-1 if self._attempt is None else self._attempt):
            self._passed = self._attempt
            self._send(PodEventKind.BARRIER_LIFTED)

    def _send(self, kind: PodEventKind, message: str = "") -> None:
        self._worker.send(PodEvent(kind, self._clock.now(), message=message))

    async def _report(self, attempt: int) -> bool:
        """Write the attempt on the pod. Return False if the pod is gone."""
        metadata = self._worker.pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {jobset.IN_PLACE_ATTEMPT: str(attempt)}}}
        while not self._machine.is_over:
            try:
                await self._client.patch(PODS, metadata["name"], patch, metadata["namespace"])
                return True
            except StatusError as error:
                if error.code in (404, 409, 422):
                    return False
                _log.warning("pod %s: the restart attempt was not written: %s", self._machine.key, error)
            except Unreachable as error:
                _log.warning("pod %s: the restart attempt was not written: %s", self._machine.key, error)
            await self._clock.sleep(_RETRY_SECONDS)
        return False
