"""Optional features of the scheduler: their modules, and what enables each.

This table is the only place that names the modules. They are imported on first use, so
a plain scheduler process contains none of them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

from windlass.spi.extender import TakesExtenderClient, TakesNodeExtender
from windlass.spi.inputs import TakesLoads


@dataclass(frozen=True, slots=True)
class Feature:
    """Optional feature. ``enabled_by``: for people."""

    name: str
    module: str
    enabled_by: str


@dataclass(frozen=True, slots=True)
class PolicyFeature(Feature):
    """Feature enabled by a policy: a plugin implements one of the Protocols ``serves``.

    ``service`` names the class in the module
    (:class:`windlass.scheduler.policy_services.PolicyService`).
    """

    service: str = ""
    serves: tuple[type, ...] = ()


EXTENDER = PolicyFeature(
    "extender",
    "windlass.scheduler.extender.service",
    "a policy with Volcano's plugin `extender`",
    "ExtenderService",
    (TakesExtenderClient, TakesNodeExtender),
)
MEASURED_LOADS = PolicyFeature(
    "measured loads",
    "windlass.scheduler.loads.service",
    "a policy with a plugin that takes measured loads, such as `usage` or `rescheduling`",
    "MeasuredLoadService",
    (TakesLoads,),
)
POLICY_FEATURES = (EXTENDER, MEASURED_LOADS)

TRACES = Feature(
    "traces",
    "windlass.scheduler.observability.traces",
    "an OTLP endpoint: --otlp-endpoint or OTEL_EXPORTER_OTLP_ENDPOINT",
)
HAMI_NODE_LOCK = Feature(
    "HAMi node lock",
    "windlass.scheduler.commit.hami_node_lock",
    "a node that HAMi's device plugin has registered",
)

_METRICS = "windlass.scheduler.compat_metrics"
METRIC_NAMES = (
    Feature("kube-scheduler", f"{_METRICS}.kube", "always"),
    Feature("Volcano", f"{_METRICS}.volcano", "always"),
    Feature("KAI", f"{_METRICS}.kai", "always"),
    Feature("Kueue", f"{_METRICS}.kueue", "`kueue` in the setting `metrics.compat`"),
    Feature("YuniKorn", f"{_METRICS}.yunikorn", "`yunikorn` in the setting `metrics.compat`"),
    Feature("HAMi", f"{_METRICS}.hami", "`cards` or `legacyCards` in the setting `metrics.details`"),
)
"""Metrics under the names of other schedulers, in the order of the reference page."""

FEATURES = (*POLICY_FEATURES, TRACES, HAMI_NODE_LOCK, *METRIC_NAMES)


def load(feature: Feature) -> ModuleType:
    """Import the module of a feature."""
    return importlib.import_module(feature.module)
