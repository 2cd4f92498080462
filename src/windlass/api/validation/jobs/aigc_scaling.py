"""Scaling of an AIGCJob (``spec.autoscale``) by itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from windlass.api.validation.collector import Collector, part

Obj = Mapping[str, Any]
METRICS = ("pendingItems", "gpuUtil", "custom")
_PATH = "spec.autoscale"
_REFERENCE = re.compile(r"(/[^:]*\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)(:[A-Za-z_]\w*)?")
_FORMS = (
    "it is module:Class, /absolute/file.py or /absolute/file.py:Class; "
    "an object with inline or configMap has the text itself"
)


def check_autoscale(spec: Obj, out: Collector) -> None:
    """Check metric, plug-in, thresholds and spot."""
    scale = part(spec, "autoscale")
    metric, plugin = scale.get("metric"), scale.get("plugin")
    if metric is not None:
        out.choice(f"{_PATH}.metric", metric, METRICS)
    if metric == "custom" and not plugin:
        out.required(f"{_PATH}.plugin", f"metric custom needs a class derived from AutoScaler: {_FORMS}")
    if plugin is not None:
        _plugin(plugin, out)
    _thresholds(scale, out)
    _spot(scale, out)
    _prometheus(scale, out)


def _prometheus(scale: Obj, out: Collector) -> None:
    path, given = f"{_PATH}.prometheus", scale.get("prometheus")
    if given is None:
        return
    address = str(part(scale, "prometheus").get("serverAddress") or "")
    queries = part(part(scale, "prometheus"), "queries")
    if not address.startswith(("http://", "https://")):
        out.invalid(f"{path}.serverAddress", address, "it begins with http:// or https://")
    if not queries:
        why = "name metrics, for example   queries: {nvidia_gpu_utilization: avg(DCGM_FI_DEV_GPU_UTIL) / 100}"
        out.required(f"{path}.queries", why)
    for name, query in queries.items():
        if not isinstance(query, str) or not query.strip():
            out.invalid(f"{path}.queries.{name}", query, "it is a PromQL query")


def _plugin(plugin: Any, out: Collector) -> None:
    path = f"{_PATH}.plugin"
    if isinstance(plugin, str):
        relative = plugin.partition(":")[0].endswith(".py") and not plugin.startswith("/")
        if relative or not _REFERENCE.fullmatch(plugin):
            out.invalid(path, plugin, _FORMS)
        return
    if not isinstance(plugin, Mapping):
        out.invalid(path, plugin, _FORMS)
        return
    inline, config = plugin.get("inline"), part(plugin, "configMap")
    if bool(inline) == bool(config.get("name")):
        out.invalid(path, sorted(plugin), "set one of inline and configMap.name")
    if isinstance(inline, str) and inline:
        try:
            ast.parse(inline)
        except (SyntaxError, ValueError) as error:
            out.invalid(f"{path}.inline", inline[:40], f"it is not Python: {error}")


def _thresholds(scale: Obj, out: Collector) -> None:
    up, down = scale.get("scaleUpUtil"), scale.get("scaleDownUtil")
    for name, value in (("scaleUpUtil", up), ("scaleDownUtil", down)):
        if isinstance(value, int | float) and not 0 <= value <= 1:
            out.invalid(f"{_PATH}.{name}", value, "it is a ratio from 0 to 1, such as 0.8")
    high, low = 0.8 if up is None else up, 0.3 if down is None else down
    if isinstance(high, int | float) and isinstance(low, int | float) and low > high:
        out.invalid(f"{_PATH}.scaleDownUtil", low, f"it must not be above scaleUpUtil ({high})")
    cooldown = scale.get("cooldownSeconds")
    if isinstance(cooldown, int | float) and cooldown < 0:
        out.invalid(f"{_PATH}.cooldownSeconds", cooldown, "must not be negative")


def _spot(scale: Obj, out: Collector) -> None:
    most = part(scale, "spot").get("maxFraction")
    if isinstance(most, int | float) and not 0 <= most <= 1:
        out.invalid(f"{_PATH}.spot.maxFraction", most, "it is a ratio from 0 to 1, such as 0.5")
