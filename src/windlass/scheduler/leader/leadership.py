"""Role of this instance among the schedulers of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def _always() -> bool:
    return True


class Leadership:
    """Role of this instance: it stands by, takes over, then decides.

    ``started`` is set once this instance decides. ``taking_over`` is true until the
    first cycle has taken in what an earlier leader had started.
    """

    def __init__(self, *, stands_by: bool = False) -> None:
        self.started = asyncio.Event()
        self.taking_over = True
        self._holds_lease: Callable[[], bool] = _always
        if not stands_by:
            self.started.set()

    @property
    def leads(self) -> bool:
        """Return whether this instance decides."""
        return self.started.is_set()

    @property
    def settled(self) -> bool:
        """Return whether this instance decides and has finished taking over."""
        return self.leads and not self.taking_over

    def holds_lease(self) -> bool:
        """Return whether no other instance can lead now."""
        return self._holds_lease()

    def start(self, holds_lease: Callable[[], bool]) -> None:
        """Decide from now on. ``holds_lease`` is asked before each write."""
        self._holds_lease = holds_lease
        self.started.set()
