"""Filter of a list or a watch (namespace, labels, fields), compiled once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.api.selectors import EVERYTHING, FieldTerm, Selector
from windlass.store.index import field_position
from windlass.store.records import Entry

_NAME, _NAMESPACE = -1, -2
_SAME_FIELD = {"status.podIPs": "status.podIP"}


class UnknownField(ValueError):
    """The field is not selectable on this resource. ``path`` is the field."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class StoreFilter(msgspec.Struct, frozen=True):
    """Conjunction of conditions.

    ``terms``: position in the index (or name, namespace), value, expected equality.
    """

    namespace: str | None = None
    labels: Selector = EVERYTHING
    terms: tuple[tuple[int, str, bool], ...] = ()

    @staticmethod
    def build(
        resource: str, namespace: str | None, labels: Selector, fields: Sequence[FieldTerm]
    ) -> StoreFilter:
        """Raises :class:`UnknownField`."""
        terms = []
        for term in fields:
            if term.path == "metadata.name":
                position = _NAME
            elif term.path == "metadata.namespace":
                position = _NAMESPACE
            else:
                path = _SAME_FIELD.get(term.path, term.path)
                found = field_position(resource, path)
                if found is None:
                    raise UnknownField(term.path)
                position = found
            terms.append((position, term.value, term.equal))
        return StoreFilter(namespace, labels, tuple(terms))

    @property
    def name(self) -> str | None:
        """The one name that can match, if there is only one."""
        return next((value for position, value, equal in self.terms if position == _NAME and equal), None)

    @property
    def selective(self) -> bool:
        """An object can enter or leave the selection during its life."""
        return bool(self.labels) or any(position >= 0 for position, _, _ in self.terms)

    @property
    def everything(self) -> bool:
        return self.namespace is None and not self.labels and not self.terms

    @property
    def narrowed(self) -> bool:
        """Return whether anything besides the namespace is filtered.

        Then a list does not report the number of remaining items.
        """
        return bool(self.labels) or bool(self.terms)

    def matches(self, entry: Entry) -> bool:
        if self.namespace is not None and entry.namespace != self.namespace:
            return False
        for position, value, equal in self.terms:
            if position >= 0:
                have = entry.fields[position]
            else:
                have = entry.name if position == _NAME else entry.namespace
            if (have == value) != equal:
                return False
        return not self.labels.requirements or self.labels.matches(entry.labels)


ALL = StoreFilter()
