"""Which tasks of a group wait, as policies see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


class PendingTasks(Protocol):
    """What groups wait with, at any moment."""

    def waiting(self, group: str) -> Mapping[int, int]:
        """Class → how many tasks of the group (``namespace/name``) neither have a node nor are promised room on one."""
        ...


@runtime_checkable
class TakesPendingTasks(Protocol):
    """A policy that is given that, once, before anything else."""

    def hear_waiting(self, waiting: PendingTasks) -> None: ...
