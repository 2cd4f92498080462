"""Exclusion from sharing a device: labels of pods, and Volcano's exclusive GPU rules.

Both become tokens that a device share carries and avoids. A device never holds two
shares of which one carries what the other avoids
(:class:`~windlass.spi.devices.DeviceNeed`).

* ``windlass.dev/device-sharing-label`` labels a pod.
  ``windlass.dev/device-sharing-exclude`` names the labels with which it shares no
  device. One side's annotation is sufficient.
* ``deviceshare.GPUExclusiveRules`` is a list of label sets. Pods that carry all labels
  of one of them share no device with one another, but may share it with other pods.
  (Volcano exempts devices in MIG mode, as their slices are isolated. Here the rule
  applies to them as well.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api.views import Pod
from windlass.spi.configuration import SchedulerConfig

RULES = "deviceshare.GPUExclusiveRules"
EXCLUSIVE = "exclusive"
Labels = tuple[tuple[str, str], ...]
Rules = tuple[Labels, ...]


def of_pod(pod: Pod, rules: Rules) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tokens that the pod carries, and those that it avoids; sorted."""
    carries = {
        f"role:{label}" for label in _words(names.read(pod.annotations, names.DEVICE_SHARING_LABEL) or "")
    }
    avoids = {
        f"role:{label}" for label in _words(names.read(pod.annotations, names.DEVICE_SHARING_EXCLUDE) or "")
    }
    if any(_matches(pod.labels, rule) for rule in rules):
        carries.add(EXCLUSIVE)
        avoids.add(EXCLUSIVE)
    return tuple(sorted(carries)), tuple(sorted(avoids))


def _words(text: str) -> Iterable[str]:
    return filter(None, (entry.strip() for entry in text.split(",")))


def _matches(labels: Mapping[str, str], rule: Labels) -> bool:
    return all(labels.get(key) == value for key, value in rule)


def exclusive_rules(config: SchedulerConfig) -> Rules:
    """Return the rules of a configuration.

    Entries that are not label sets, or empty, are ignored.
    """
    rules: list[Labels] = []
    for tier in config.tiers:
        for option in tier.plugins:
            if option.name == "deviceshare":
                rules += _rules(option.arguments.get(RULES))
    return tuple(rules)


def _rules(value: Any) -> Iterable[Labels]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and item:
            yield tuple(sorted((str(key), str(text)) for key, text in item.items()))
