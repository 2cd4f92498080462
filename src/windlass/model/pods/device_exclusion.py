"""With whom a pod shares a device: its own word, and Volcano's rules about exclusive GPUs.

Both come to tokens that a part of a device carries and avoids: a device never holds two parts of which one carries
what the other avoids (:class:`~windlass.spi.devices.DeviceNeed`).

* ``windlass.dev/device-sharing-label`` says what a pod is, ``windlass.dev/device-sharing-exclude`` which
  of these labels it shares no device with; either side's word is enough.
* ``deviceshare.GPUExclusiveRules``: a list of label sets. Pods that carry all labels of any of them share no
  device with one another, but with others they may. (Volcano leaves devices in MIG mode out, whose slices are
  isolated; here the rule holds for them as well.)
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
    """What the pod carries, and what it avoids; sorted."""
    carries = {
        f"role:{word}" for word in _words(names.read(pod.annotations, names.DEVICE_SHARING_LABEL) or "")
    }
    avoids = {
        f"role:{word}" for word in _words(names.read(pod.annotations, names.DEVICE_SHARING_EXCLUDE) or "")
    }
    if any(_matches(pod.labels, rule) for rule in rules):
        carries.add(EXCLUSIVE)
        avoids.add(EXCLUSIVE)
    return tuple(sorted(carries)), tuple(sorted(avoids))


def _words(text: str) -> Iterable[str]:
    return filter(None, (word.strip() for word in text.split(",")))


def _matches(labels: Mapping[str, str], rule: Labels) -> bool:
    return all(labels.get(key) == value for key, value in rule)


def exclusive_rules(config: SchedulerConfig) -> Rules:
    """The rules of a configuration; what is no set of labels, or an empty one, is none."""
    found: list[Labels] = []
    for tier in config.tiers:
        for option in tier.plugins:
            if option.name == "deviceshare":
                found += _rules(option.arguments.get(RULES))
    return tuple(found)


def _rules(value: Any) -> Iterable[Labels]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and item:
            yield tuple(sorted((str(key), str(text)) for key, text in item.items()))
