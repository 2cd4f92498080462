"""Binds wait for devices that are made ready once they are allocated (``bindingConditions``), as kube-scheduler's do.

The allocation is written first. The device's driver then sets conditions in the claim's ``status.devices``: all that
the device names, and its pod is bound; one that says it failed, or none for so long, and the allocation is taken back:
the pod is placed anew. A driver that wants another device to be chosen then taints the one that failed.
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
"""So long may devices take to be made ready (``bindingTimeout`` of kube-scheduler's plugin DynamicResources)."""


class DevicesAwaited:
    """Whether the devices of some binds are ready. ``now``: when their allocation was written, in Unix seconds."""

    def __init__(self, model: ClusterModel, binds: Sequence[Bind], now: float, clock: Clock) -> None:
        self._model = model
        self._binds = binds
        self._written = float(int(now))
        self._clock = clock
        self._until = clock.monotonic() + DEVICE_SECONDS

    def __call__(self) -> str | None:
        waiting, problem = False, ""
        for bind in self._binds:
            late, why = self._look(bind)
            self._model.awaits(bind.task, Reason.AWAITING_DEVICE, "" if why else late)
            waiting, problem = waiting or bool(late), problem or why
        return problem or (None if waiting else "")

    def withdrawn(self) -> list[ClaimWrite]:
        """What gives the devices back."""
        pods = [pod for bind in self._binds if (pod := self._pod(bind)) is not None]
        claims = {one.key: one for pod in pods for one in self._model.claims.claims_of(pod)}
        return withdrawals(claims.values(), [pod.uid for pod in pods])

    def _pod(self, bind: Bind) -> views.Pod | None:
        pod = self._model.pods.get(bind.task)
        return pod if pod is not None and pod.uid == bind.uid and not pod.deleted else None

    def _look(self, bind: Bind) -> tuple[str, str]:
        """What it waits for, and why in vain."""
        pod = self._pod(bind)
        if pod is None:
            return "", f"pod {bind.task} is gone"
        late = ""
        for claim in self._model.claims.claims_of(pod):
            if not claim.allocated or claim.allocated_at < self._written:  # it is on its way here
                late = late or f"claim {claim.name}"
                continue
            for device in claim.awaited:
                if device.failure:
                    return (
                        "",
                        f"device {device.name} of claim {claim.name} cannot be made ready: {device.failure}",
                    )
                if device.missing:
                    late = late or f"device {device.name} of claim {claim.name}, {', '.join(device.missing)}"
        if late and self._clock.monotonic() >= self._until:
            return "", f"{late} was not ready after {DEVICE_SECONDS:g} s"
        return late, ""
