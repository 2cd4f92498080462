"""Plugin ``env``: ``VC_TASK_INDEX`` (and the older ``VK_TASK_INDEX``), the pod's index in its task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.controllers.vcjob.plugins.place import PodPosition, add_env, containers, variable


def decorate(pod: dict[str, Any], place: PodPosition, arguments: Sequence[str]) -> None:
    for container in containers(pod, init=True):
        add_env(container, variable("VK_TASK_INDEX", place.index), variable("VC_TASK_INDEX", place.index))
