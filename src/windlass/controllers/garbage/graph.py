"""Ownership graph over every served kind: objects by UID, and dependents by owner."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from windlass.api.errors import FieldError
from windlass.api.resources import ALIASES, ALL, EVENTS, EVENTS_V1, Resource, by_kind
from windlass.api.views import OwnerReference
from windlass.api.views.wire import intern, metadata, owners, split

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
COLLECTED: tuple[Resource, ...] = tuple(r for r in ALL if r not in ALIASES and r not in (EVENTS, EVENTS_V1))
"""Kinds that own or are owned. Events are left to their time to live, as in Kubernetes."""
MAX_REMEMBERED_ABSENT = 5_000


@dataclass(frozen=True, slots=True)
class Item:
    """Fields of an object that garbage collection reads."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    resource_version: str
    owners: tuple[OwnerReference, ...]
    finalizers: tuple[str, ...]
    deleted: float

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def waits_for_dependents(self) -> bool:
        return self.deleted > 0 and FOREGROUND in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        return self.deleted > 0 and ORPHAN in self.finalizers


class ItemDecoder:
    """JSON of an object of one kind → :class:`Item`."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ItemDecoder) and other.resource == self.resource

    def __hash__(self) -> int:
        return hash((ItemDecoder, self.resource))

    def __call__(self, raw: msgspec.Raw) -> Item:
        problems: list[FieldError] = []
        meta = metadata(split(raw).metadata, problems)
        return Item(
            self.resource,
            intern(meta.namespace),
            meta.name,
            meta.uid,
            meta.resource_version,
            owners(meta.owner_references),
            tuple(intern(finalizer) for finalizer in meta.finalizers or ()),
            1.0 if meta.deletion_timestamp else 0.0,
        )


class Graph:
    """Ownership graph, updated by the informers. It remembers the UIDs of deleted objects."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._dependents: dict[str, set[str]] = {}
        self._absent: OrderedDict[str, None] = OrderedDict()
        self.custom: dict[tuple[str, str], Resource] = {}
        """(apiVersion, kind) of users' CustomResourceDefinitions → the followed version."""

    def __len__(self) -> int:
        return len(self._items)

    def get(self, uid: str) -> Item | None:
        return self._items.get(uid)

    def dependents(self, uid: str) -> list[Item]:
        return [self._items[child] for child in sorted(self._dependents.get(uid, ()))]

    def is_absent(self, uid: str) -> bool:
        return uid in self._absent

    def remember_absent(self, uid: str) -> None:
        self._absent[uid] = None
        self._absent.move_to_end(uid)
        if len(self._absent) > MAX_REMEMBERED_ABSENT:
            self._absent.popitem(last=False)

    def add(self, item: Item) -> None:
        self._items[item.uid] = item
        self._absent.pop(item.uid, None)
        for owner in item.owners:
            self._dependents.setdefault(owner.uid, set()).add(item.uid)

    def update(self, old: Item, new: Item) -> None:
        self._unlink(old)
        self.add(new)

    def remove(self, item: Item) -> None:
        self._unlink(item)
        self._items.pop(item.uid, None)
        self.remember_absent(item.uid)

    def _unlink(self, item: Item) -> None:
        for owner in item.owners:
            children = self._dependents.get(owner.uid)
            if children is not None:
                children.discard(item.uid)
                if not children:
                    del self._dependents[owner.uid]

    def affected_keys(self, item: Item) -> Iterable[str]:
        """Return the UIDs to reconcile after this item was added, changed or removed."""
        if item.owners or item.deleted:
            yield item.uid
        yield from self._dependents.get(item.uid, ())
        for owner in item.owners:
            cached = self._items.get(owner.uid)
            if cached is not None and cached.deleted:
                yield owner.uid

    def owner_resource(self, owner: OwnerReference) -> Resource | None:
        """Return the stored kind of an owner; ``None`` for a kind that is not served."""
        resource = by_kind(owner.api_version, owner.kind)
        if resource is None:
            return self.custom.get((owner.api_version, owner.kind))
        return ALIASES.get(resource, resource)
