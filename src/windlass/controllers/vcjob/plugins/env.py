"""Plugin ``env``: index of the pod in its task.

It sets ``VC_TASK_INDEX`` and the older ``VK_TASK_INDEX``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.controllers.vcjob.plugins.position import PodPosition, add_env, containers, variable


def decorate(pod: dict[str, Any], position: PodPosition, arguments: Sequence[str]) -> None:
    for container in containers(pod, init=True):
        add_env(
            container, variable("VK_TASK_INDEX", position.index), variable("VC_TASK_INDEX", position.index)
        )
