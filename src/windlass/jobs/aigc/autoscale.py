"""Scaling of the workers of an AIGCJob, as ``spec.autoscale`` asks for it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import aigc
from windlass.api.fields.stages import BATCH_ITEMS

PENDING_ITEMS, GPU_UTIL, CUSTOM = "pendingItems", "gpuUtil", "custom"
METRICS = (PENDING_ITEMS, GPU_UTIL, CUSTOM)
COOLDOWN_SECONDS = 300.0
"""Default of ``spec.autoscale.cooldownSeconds``."""
SCALE_UP_UTIL, SCALE_DOWN_UTIL, FACTOR = 0.8, 0.3, 2
"""Defaults of the metric ``gpuUtil``."""
CONFIG_MAP_KEY = "autoscaler.py"
"""Default key of a plug-in in a ConfigMap."""


@dataclass(frozen=True, slots=True)
class ScalerPlugin:
    """Class that a user wrote, and where it is.

    ``reference``: ``module[:Class]`` or the absolute path ``file.py[:Class]``. ``source``: its text.
    ``config_map``, ``key``: ConfigMap with the text. ``class_name``: empty for the only one.
    """

    reference: str = ""
    source: str = ""
    config_map: str = ""
    key: str = ""
    class_name: str = ""

    @property
    def shown(self) -> str:
        """Return where the class is, in words."""
        if self.config_map:
            return f"configmap/{self.config_map} {self.key}"
        return self.reference or "spec.autoscale.plugin.inline"


@dataclass(frozen=True, slots=True)
class Autoscale:
    """Normal form of ``spec.autoscale``.

    ``metric``: one of :data:`METRICS`. ``scale_up``, ``scale_down``: ratios from 0 to 1.
    ``batch``: rows that a worker takes at once.
    ``prometheus``: its address, empty for none.
    ``queries``: metric → query.
    """

    metric: str
    plugin: ScalerPlugin | None
    scale_up: float
    scale_down: float
    factor: int
    cooldown_seconds: float
    batch: int
    prometheus: str
    queries: Mapping[str, str]


def autoscale_of(spec: Mapping[str, Any]) -> Autoscale | None:
    """Return the scaling that a valid spec asks for; ``None`` for a fixed number of workers."""
    given = aigc.part(spec, "autoscale")
    if not given:
        return None
    plugin = plugin_of(given)
    cooldown = given.get("cooldownSeconds")
    return Autoscale(
        metric=str(given.get("metric") or (CUSTOM if plugin is not None else PENDING_ITEMS)),
        plugin=plugin,
        scale_up=_number(given.get("scaleUpUtil"), SCALE_UP_UTIL),
        scale_down=_number(given.get("scaleDownUtil"), SCALE_DOWN_UTIL),
        factor=int(given.get("factor") or FACTOR),
        cooldown_seconds=_number(cooldown, COOLDOWN_SECONDS),
        batch=int(aigc.part(spec, "batching").get("size") or BATCH_ITEMS),
        prometheus=str(aigc.part(given, "prometheus").get("serverAddress") or ""),
        queries=aigc.part(aigc.part(given, "prometheus"), "queries"),
    )


def plugin_of(given: Mapping[str, Any]) -> ScalerPlugin | None:
    """Return the plug-in of ``spec.autoscale``."""
    plugin = given.get("plugin")
    if isinstance(plugin, str) and plugin:
        return ScalerPlugin(reference=plugin)
    if not isinstance(plugin, Mapping):
        return None
    config = aigc.part(plugin, "configMap")
    return ScalerPlugin(
        source=str(plugin.get("inline") or ""),
        config_map=str(config.get("name") or ""),
        key=str(config.get("key") or CONFIG_MAP_KEY),
        class_name=str(plugin.get("class") or ""),
    )


def scales(spec: Mapping[str, Any]) -> bool:
    """Return whether the number of workers follows a metric. With stages, it is that which they share."""
    return bool(aigc.part(spec, "autoscale"))


def decided_workers(obj: Mapping[str, Any]) -> int | None:
    """Return the number of workers that the last decision set; ``None`` without scaling or decision."""
    if not scales(aigc.part(obj, "spec")):
        return None
    record = aigc.part(aigc.part(obj, "status"), "scaling")
    if aigc.part(obj, "spec").get("replicas") != record.get("replicas"):
        return None
    return int(record.get("desired") or 0) or None


def plugin_file(spec: Mapping[str, Any]) -> str:
    """Return the file of the node that holds the plug-in; empty if it is none."""
    plugin = plugin_of(aigc.part(spec, "autoscale"))
    path = plugin.reference.partition(":")[0] if plugin is not None else ""
    return path if path.startswith("/") else ""


def mount_plugin(spec: Mapping[str, Any], body: dict[str, Any]) -> None:
    """Mount the folder of a plug-in on the node into the first container, which runs the class."""
    path = plugin_file(spec)
    if not path:
        return
    folder = posixpath.dirname(path)
    first, *others = body["containers"]
    mounts = [*(first.get("volumeMounts") or ())]
    if folder == "/" or any(one.get("mountPath") == folder for one in mounts):
        return
    name = "windlass-scaler"
    mounts.append({"name": name, "mountPath": folder, "readOnly": True})
    body["volumes"] = [*(body.get("volumes") or ()), {"name": name, "hostPath": {"path": folder}}]
    body["containers"] = [{**first, "volumeMounts": mounts}, *others]


def _number(given: Any, default: float) -> float:
    return default if given is None else float(given)
