"""Client-side apply: the patch that makes an object match its manifest.

There are three states: *original* (the manifest that was applied last, stored in an
annotation), *modified* (the manifest now) and *live* (the server's object). Fields of
the original that the manifest no longer has are removed. Fields of the manifest are
set. All other fields stay as other clients set them.

As in kubectl, custom kinds use a JSON merge patch (lists are replaced as a whole).
Built-in kinds use a strategic merge patch (lists are merged by their key; apimachinery
``strategicpatch.CreateThreeWayMergePatch``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.wire.schema import SchemaNode, Struct

Object = Mapping[str, Any]


def merge_patch(original: Object, modified: Object, live: Object) -> dict[str, Any]:
    """Return a JSON merge patch (RFC 7396); empty if nothing changes."""
    return _maps({}, original, modified, live)


def strategic_patch(struct: Struct, original: Object, modified: Object, live: Object) -> dict[str, Any]:
    """Return a strategic merge patch for a kind with this schema; empty if nothing changes."""
    return _maps(struct.fields, original, modified, live)


def _maps(
    fields: Mapping[str, SchemaNode], original: Object, modified: Object, live: Object
) -> dict[str, Any]:
    """Return the patch for a mapping; ``fields``: known schemas. Other lists are whole."""
    patch: dict[str, Any] = {}
    for key, value in modified.items():
        node = fields.get(key)
        if value is None:
            if key in live:
                patch[key] = None
        elif key not in live:
            patch[key] = value
        elif isinstance(value, Mapping) and isinstance(live[key], Mapping):
            _nested(patch, key, node, (original.get(key), value, live[key]))
        elif isinstance(value, list) and isinstance(live[key], list) and _merges(node):
            assert node is not None
            _lists(patch, key, node, (original.get(key), value, live[key]))
        elif value != live[key]:
            patch[key] = value
    for key in original:
        if key not in modified and key in live:
            patch[key] = None
    return patch


def _nested(patch: dict[str, Any], key: str, node: SchemaNode | None, states: tuple[Any, Any, Any]) -> None:
    original, modified, live = states
    if node is not None and "replace" in node.strategy:
        if modified != live:
            patch[key] = {**modified, "$patch": "replace"}
        return
    inner = _maps(_fields(node), original if isinstance(original, Mapping) else {}, modified, live)
    if inner:
        patch[key] = inner


def _fields(node: SchemaNode | None) -> Mapping[str, SchemaNode]:
    return node.struct.fields if node is not None and node.struct is not None else {}


def _merges(node: SchemaNode | None) -> bool:
    return node is not None and "merge" in node.strategy


def _lists(patch: dict[str, Any], key: str, node: SchemaNode, states: tuple[Any, Any, Any]) -> None:
    original, modified, live = states
    original = original if isinstance(original, list) else []
    if not node.merge_key:
        _primitive_lists(patch, key, original, modified, live)
        return
    if not all(_keyed(items, node.merge_key) for items in (original, modified, live)):
        if modified != live:
            patch[key] = [{"$patch": "replace"}, *modified]
        return
    name = node.merge_key
    before, now = {item[name]: item for item in original}, {item[name]: item for item in live}
    changes: list[Any] = []
    for item in modified:
        live_item = now.get(item[name])
        if live_item is None:
            changes.append(item)
            continue
        inner = _maps(_fields(node.item), before.get(item[name], {}), item, live_item)
        if inner:
            changes.append({name: item[name], **inner})
    wanted = {item[name] for item in modified}
    changes += [{name: gone, "$patch": "delete"} for gone in before if gone not in wanted and gone in now]
    order = [item[name] for item in modified]
    if changes:
        patch[key] = changes
    if changes or order != [item[name] for item in live if item[name] in wanted]:
        patch[f"$setElementOrder/{key}"] = [{name: value} for value in order]


def _keyed(items: Sequence[Any], key: str) -> bool:
    """Return whether every item has the merge key, and all its values differ."""
    values = [item.get(key) for item in items if isinstance(item, Mapping)]
    return len(values) == len(items) == len({str(v) for v in values}) and None not in values


def _primitive_lists(
    patch: dict[str, Any], key: str, original: list[Any], modified: list[Any], live: list[Any]
) -> None:
    added = [value for value in modified if value not in live]
    removed = [value for value in original if value not in modified and value in live]
    if added:
        patch[key] = added
    if removed:
        patch[f"$deleteFromPrimitiveList/{key}"] = removed
    if (added or removed) and len(modified) > 1:
        patch[f"$setElementOrder/{key}"] = modified
