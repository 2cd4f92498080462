"""Full explanations of pending groups: with estimate, requested nodes and names."""

from __future__ import annotations

from dataclasses import replace

from windlass.api.reasons import Explanation
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.scheduler.autoscaling.provisioning import ProvisioningRequests
from windlass.scheduler.commit.eviction_results import EvictionResults
from windlass.scheduler.engine_host import EngineHost
from windlass.scheduler.estimates.start_estimates import StartEstimates
from windlass.scheduler.steady_time import SteadyTime


class Explanations:
    """Completes explanations of the engine and of the model."""

    def __init__(
        self,
        model: ClusterModel,
        host: EngineHost,
        provisioning: ProvisioningRequests,
        estimates: StartEstimates,
        evictions: EvictionResults,
        *,
        time: SteadyTime,
    ) -> None:
        self._model = model
        self._host = host
        self._provisioning = provisioning
        self._estimates = estimates
        self._evictions = evictions
        self._time = time

    def explain(self, group: str) -> Explanation | None:
        """Return why a group waits, in all detail, ``None`` if nothing of it waits."""
        explanation = self._model.explanation(group)
        if explanation is None:
            try:
                explanation = self._host.engine.explain(group, self._time.now())
            except KeyError:
                return None
            if explanation is None:
                return None
            explanation = self._model.completed(group, explanation)
        explanation = self._with_prospects(group, explanation)
        rejection = self._evictions.rejections.get(group)
        if rejection is not None:
            explanation = replace(explanation, extra={**explanation.extra, "no eviction": rejection})
        return self._model.display_names().explanation(explanation)

    def short(self, group: str, reported: Explanation | None) -> Explanation | None:
        """Return why a group waits, as the model or else the engine reported last."""
        explanation = self._model.explanation(group)
        if explanation is None and reported is not None:
            explanation = self._model.completed(group, reported)
        if explanation is None:
            return None
        return self._model.display_names().explanation(self._with_prospects(group, explanation))

    def _with_prospects(self, group: str, explanation: Explanation) -> Explanation:
        """Add the estimated start and the requested nodes."""
        return self._provisioning.complete(group, self._estimates.complete(group, explanation))
