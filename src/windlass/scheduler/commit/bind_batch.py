"""Binds that begin together, and what happens before and after them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api import resources, views
from windlass.engine.decision import Bind

Condition = Callable[[], str | None]
"""Condition for binds: ``""`` if met, ``None`` while it may come true, or why it cannot."""


class Withdrawn(Exception):
    """A bind is not to be sent any more. The message says why."""


@dataclass(frozen=True, slots=True)
class PreBindWrite:
    """Merge patch written before a bind.

    ``vital``: without the write nothing may be bound. Otherwise binds are withdrawn
    only if the object does not exist.
    """

    resource: resources.Resource
    namespace: str
    name: str
    body: Mapping[str, Any]
    subresource: str | None = None
    vital: bool = True

    @property
    def description(self) -> str:
        """Kind and name of the object, for messages."""
        return f"{self.resource.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class BindBatch:
    """Binds that begin together, or not at all.

    ``writes`` come first. Then ``ready`` must be met, and ``verify`` asks the server
    last. It returns why the binds must not be sent, or ``""``. ``undo`` returns the
    writes that restore the objects if nothing is bound in the end.
    """

    binds: tuple[Bind, ...]
    writes: tuple[PreBindWrite, ...] = ()
    ready: Condition | None = None
    verify: Callable[[], Awaitable[str]] | None = None
    undo: Callable[[], Sequence[PreBindWrite]] | None = None


@dataclass(frozen=True, slots=True)
class BindResult:
    """End of one bind.

    ``bound``: the pod is on the decided node.
    ``pod``: its newest state, if it was looked up.
    ``gone``: the pod does not exist any more.
    ``recalled``: the bind was not sent.
    ``seconds``: duration of the binding.
    """

    bind: Bind
    bound: bool
    message: str = ""
    pod: views.Pod | None = None
    gone: bool = False
    recalled: bool = False
    seconds: float = 0.0
