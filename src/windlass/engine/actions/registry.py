"""Actions by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from windlass.engine.actions.allocate import Allocate
from windlass.engine.cycle import Action, Machinery

ACTIONS: Mapping[str, Callable[[Machinery], Action]] = {
    "allocate": Allocate,
}


def make_actions(names: Iterable[str], machinery: Machinery) -> tuple[Action, ...]:
    """The named actions, in that order, each with a memory of its own.

    Raises ``ValueError`` for a name that no action has.
    """
    found = []
    for name in names:
        factory = ACTIONS.get(name)
        if factory is None:
            raise ValueError(f"there is no action {name!r}; there are {', '.join(sorted(ACTIONS))}")
        found.append(factory(machinery))
    return tuple(found)
