"""Wait for volumes that are provisioned once their first consumer is placed."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.engine.decision import Bind
from windlass.model.cluster.cluster_model import ClusterModel


class VolumesReady:
    """Condition that the volumes of some binds exist.

    If the provisioner removes ``selected-node`` from a claim again, the claim has
    failed, as for kube-scheduler.
    """

    def __init__(self, model: ClusterModel, binds: Sequence[Bind]) -> None:
        self._model = model
        self._pods = {bind.task: bind.uid for bind in binds}
        self._claims = {
            bind.task: [f"{pod.namespace}/{name}" for name in pod.claims]
            for bind in binds
            if (pod := model.objects.pods.get(bind.task)) is not None
        }
        self._left = {key: bind.node for bind in binds for key in self._claims.get(bind.task, ())}
        self._seen: set[str] = set()
        """Claims that were seen with the selected node."""

    def __call__(self) -> str | None:
        state = self._check()
        for task, claims in self._claims.items():
            awaited = next((key for key in claims if key in self._left and state is None), "")
            what = f"claim {awaited}, for node {self._left[awaited]}" if awaited else ""
            self._model.binds.set_awaited(task, Reason.AWAITING_VOLUME, what)
        return state

    def _check(self) -> str | None:
        for key, uid in self._pods.items():
            pod = self._model.objects.pods.get(key)
            if pod is None or pod.uid != uid or pod.deleted:
                return f"pod {key} is gone"
        claims = self._model.features.volumes.index.claims
        for key, node in list(self._left.items()):
            claim = claims.get(key)
            if claim is None or claim.deleted:
                return f"claim {key} is gone"
            if claim.bound:
                del self._left[key]
            elif claim.selected_node == node:
                self._seen.add(key)
            elif key in self._seen:
                return f"no volume could be made for claim {key} on {node}"
        return None if self._left else ""
