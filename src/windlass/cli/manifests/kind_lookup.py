"""Lookup of the kind that a user names."""

from __future__ import annotations

from windlass.api.errors import WindlassError
from windlass.api.resources import ALIASES, ALL, Resource, find
from windlass.cli.errors import nearest
from windlass.cli.manifests import served_kinds
from windlass.cli.manifests.served_kinds import ClientSource


def resource_of(word: str, client: ClientSource | None = None) -> Resource:
    """Return the kind. Raises :class:`WindlassError` with the nearest kinds.

    ``client``: also look for a kind that only the server knows.
    """
    resource = find(word) or find(word.lower().removesuffix("s"))  # also "vcjobs", the plural of a short name
    if resource is None and client is not None:
        resource = served_kinds.find(client, word)
    if resource is not None:
        return resource
    known = sorted({name for r in ALL for name in (r.plural, r.singular, *r.short_names)})
    close = nearest(word, known)
    raise WindlassError(
        "WL-KIND-404",
        f'kind "{word}" does not exist',
        evidence="kinds: " + ", ".join(sorted({r.plural for r in ALL})),
        remedies=tuple(f"did you mean {match}?" for match in close) or ("windlass get --help",),
    )


def _kinds(word: str, client: ClientSource | None) -> list[Resource]:
    """Return one kind, or all kinds of a category (``all``, ``volcano``)."""
    category = [r for r in ALL if word.lower() in r.categories and r not in ALIASES]
    return category or [resource_of(word, client)]


def split_names(
    words: tuple[str, ...], client: ClientSource | None = None
) -> list[tuple[Resource, str | None]]:
    """Parse kubectl's arguments: ``pods``, ``pods a b``, ``pod/a node/b``, ``pods,queues``.

    The name ``None`` means all objects of the kind. Raises :class:`WindlassError`.
    """
    if any("/" in word for word in words):
        for word in words:
            kind, slash, name = word.partition("/")
            if not slash or not kind or not name:
                raise WindlassError(
                    "WL-USE-400",
                    f'"{word}" is not KIND/NAME',
                    evidence="use KIND/NAME for all names, or one KIND with names after it",
                    remedies=("windlass get pod/a pod/b", "windlass get pods a b"),
                )
        parts = [word.partition("/") for word in words]
        return [(resource_of(kind, client), name) for kind, _, name in parts]
    kinds = [
        found for word in words[:1] for kind in word.split(",") if kind for found in _kinds(kind, client)
    ]
    if len(words) == 1:
        return [(kind, None) for kind in kinds]
    return [(kind, name) for kind in kinds for name in words[1:]]
