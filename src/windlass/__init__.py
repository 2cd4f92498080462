"""Windlass: one control plane that gang-schedules AI work over GPUs, on one box or on Kubernetes.

``submit``, ``map``, ``Executor``, ``JobBuilder`` and others are those of :mod:`windlass.sdk`, imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.sdk import Executor as Executor
    from windlass.sdk import Future as Future
    from windlass.sdk import JobBuilder as JobBuilder
    from windlass.sdk import JobHandle as JobHandle
    from windlass.sdk import Target as Target
    from windlass.sdk import Workflow as Workflow
    from windlass.sdk import map as map
    from windlass.sdk import submit as submit

__version__ = "0.1.0"
_SDK = (
    "Executor",
    "Future",
    "ItemFailed",
    "JobBuilder",
    "JobDeleted",
    "JobFailed",
    "JobHandle",
    "RemoteTraceback",
    "Target",
    "Workflow",
    "map",
    "submit",
)


def __getattr__(name: str) -> Any:
    if name in _SDK:
        from windlass import sdk

        return getattr(sdk, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*globals(), *_SDK))
