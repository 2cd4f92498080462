"""Wait for devices that are made ready after their allocation (``bindingConditions``).

As in kube-scheduler, the allocation is written first. The device's driver then sets
conditions in the claim's ``status.devices``. The pod is bound once all conditions that
the device names are true. If the driver reports a failure, or nothing until the
timeout, the allocation is undone and the pod is placed again. A driver that wants
another device to be chosen then taints the one that failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api import views
from windlass.api.reasons import Reason
from windlass.engine.decision import Bind
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.devices.dra_claims import ClaimWrite, withdrawals

DEVICE_SECONDS = 600.0
"""Timeout in seconds, ``bindingTimeout`` of kube-scheduler's plugin DynamicResources."""


class DevicesReady:
    """Condition that the devices of some binds are ready.

    ``now``: Unix seconds at which their allocation was written.
    """

    def __init__(self, model: ClusterModel, binds: Sequence[Bind], now: float, clock: Clock) -> None:
        self._model = model
        self._binds = binds
        self._written = float(int(now))
        self._clock = clock
        self._until = clock.monotonic() + DEVICE_SECONDS

    def __call__(self) -> str | None:
        waiting, problem = False, ""
        for bind in self._binds:
            missing, failure = self._check(bind)
            self._model.binds.set_awaited(bind.task, Reason.AWAITING_DEVICE, "" if failure else missing)
            waiting, problem = waiting or bool(missing), problem or failure
        return problem or (None if waiting else "")

    def withdrawals(self) -> list[ClaimWrite]:
        """Return the writes that release the devices."""
        pods = [pod for bind in self._binds if (pod := self._pod(bind)) is not None]
        claims = {
            claim.key: claim for pod in pods for claim in self._model.features.claims.index.claims_of(pod)
        }
        return withdrawals(claims.values(), [pod.uid for pod in pods])

    def _pod(self, bind: Bind) -> views.Pod | None:
        pod = self._model.objects.pods.get(bind.task)
        return pod if pod is not None and pod.uid == bind.uid and not pod.deleted else None

    def _check(self, bind: Bind) -> tuple[str, str]:
        """Return what a bind waits for, and why it cannot succeed."""
        pod = self._pod(bind)
        if pod is None:
            return "", f"pod {bind.task} is gone"
        missing = ""
        for claim in self._model.features.claims.index.claims_of(pod):
            if not claim.allocated or claim.allocated_at < self._written:  # the watch is behind
                missing = missing or f"claim {claim.name}"
                continue
            for device in claim.awaited:
                if device.failure:
                    return (
                        "",
                        f"device {device.name} of claim {claim.name} cannot be made ready: {device.failure}",
                    )
                if device.missing:
                    conditions = ", ".join(device.missing)
                    missing = missing or f"device {device.name} of claim {claim.name}, {conditions}"
        if missing and self._clock.monotonic() >= self._until:
            return "", f"{missing} was not ready after {DEVICE_SECONDS:g} s"
        return missing, ""
