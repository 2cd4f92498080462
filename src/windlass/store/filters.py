"""Filter of a list or a watch (namespace, labels, fields), compiled once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.api.selectors import EVERYTHING, FieldTerm, Selector
from windlass.store.index import field_position
from windlass.store.records import Entry

_decode = msgspec.json.Decoder().decode
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
    ``paths``: path in the object, value, expected equality. They need the decoded object.
    """

    namespace: str | None = None
    labels: Selector = EVERYTHING
    terms: tuple[tuple[int, str, bool], ...] = ()
    paths: tuple[tuple[tuple[str, ...], str, bool], ...] = ()

    @staticmethod
    def build(
        resource: str,
        namespace: str | None,
        labels: Selector,
        fields: Sequence[FieldTerm],
        selectable: Sequence[str] = (),
    ) -> StoreFilter:
        """Return the filter of a selection. ``selectable``: paths that a custom kind declares.

        Raises :class:`UnknownField`.
        """
        terms = []
        paths = []
        for term in fields:
            if term.path in selectable:
                paths.append((tuple(term.path.split(".")), term.value, term.equal))
                continue
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
        return StoreFilter(namespace, labels, tuple(terms), tuple(paths))

    @property
    def name(self) -> str | None:
        """The one name that can match, if there is only one."""
        return next((value for position, value, equal in self.terms if position == _NAME and equal), None)

    @property
    def selective(self) -> bool:
        """An object can enter or leave the selection during its life."""
        return bool(self.labels) or bool(self.paths) or any(position >= 0 for position, _, _ in self.terms)

    @property
    def everything(self) -> bool:
        return self.namespace is None and not self.labels and not self.terms and not self.paths

    @property
    def narrowed(self) -> bool:
        """Return whether anything besides the namespace is filtered.

        Then a list does not report the number of remaining items.
        """
        return bool(self.labels) or bool(self.terms) or bool(self.paths)

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
        if self.paths and not self._paths_match(entry):
            return False
        return not self.labels.requirements or self.labels.matches(entry.labels)

    def _paths_match(self, entry: Entry) -> bool:
        obj = _decode(entry.data)
        for steps, wanted, equal in self.paths:
            value = obj
            for step in steps:
                value = value.get(step) if isinstance(value, dict) else None
            if (_text(value) == wanted) != equal:
                return False
        return True


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


ALL = StoreFilter()
