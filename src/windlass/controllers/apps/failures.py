"""Last failed creation or deletion of each key, which the status of the object tells."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.resources import Resource
from windlass.controllers.apply_effects import Failure
from windlass.controllers.effects import Create, Delete


class WriteFailures:
    """Errors of writes of one kind, by key. ``resource``: kind of the written objects."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._messages: dict[str, str] = {}

    def get(self, key: str) -> str:
        """Return the error of the last attempt; empty if it succeeded."""
        return self._messages.get(key, "")

    def note(self, key: str, failures: Sequence[Failure]) -> None:
        """Note the result of an attempt."""
        for failure in failures:
            action = failure.action
            if failure.refused and isinstance(action, Create | Delete) and action.resource == self._resource:
                self._messages[key] = failure.message
                return
        if not failures:
            self._messages.pop(key, None)

    def forget(self, key: str) -> None:
        self._messages.pop(key, None)
