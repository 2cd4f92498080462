"""Strategic merge patch: lists merge by key, with directives. Applying only; making one is kubectl's part.

Follows ``strategicpatch.StrategicMergeMapPatch`` of apimachinery v0.36. The functions keep its names, so
that the two can be read side by side. Merge keys and strategies come from the type data.
"""

from __future__ import annotations

from typing import Any

from windlass.api.wire.schema import SchemaNode, Struct

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"

_BAD_RETAIN = "invalid patch format of retainKeys"
_BAD_ORDER = "invalid patch format of setElementOrder list"


class StrategicMergeError(ValueError):
    """The patch does not have the shape that the type demands; the message is apimachinery's."""


class BadPatchFormat(StrategicMergeError):
    """A directive or a list is of no shape at all (a 400; the others are a 422)."""


def merge_strategically(original: dict[str, Any], patch: dict[str, Any], struct: Struct) -> dict[str, Any]:
    """``original`` with ``patch``; both are used up. Raises :class:`StrategicMergeError`."""
    return _merge_map(original, patch, struct)


def _lookup(struct: Struct | None, key: str) -> tuple[SchemaNode | None, str, str]:
    """The node of a field, its strategy without retainKeys, and its merge key."""
    node = struct.fields.get(key) if struct is not None else None
    if node is None:
        return None, "", ""
    strategy = next((word for word in node.strategy if word != "retainKeys"), "")
    return node, strategy, node.merge_key


def _inner(node: SchemaNode | None) -> Struct | None:
    """The struct of a field's value, or of its items."""
    if node is None:
        return None
    if node.kind in ("list", "map"):
        return node.item.struct if node.item is not None else None
    return node.struct


def _merge_map(original: dict[str, Any], patch: dict[str, Any], struct: Struct | None) -> dict[str, Any]:
    if _DIRECTIVE in patch:
        return _directive_in_map(patch)
    _apply_retain_keys(original, patch)
    _merge_ordered_lists(original, patch, struct)
    for key, value in patch.items():
        deleting = key.startswith(_DELETE_PRIMITIVES)
        if deleting:
            key = key.removeprefix(_DELETE_PRIMITIVES)
        if value is None:
            original.pop(key, None)
            continue
        old = original.get(key)
        if key not in original or type(old) is not type(value):
            if not deleting:
                _take(original, key, value)
            continue
        if isinstance(value, dict):
            node, strategy, _ = _lookup(struct, key)
            inner = node.struct if node is not None and node.kind == "struct" else None
            original[key] = value if strategy == "replace" else _merge_map(old, value, inner)  # type: ignore[arg-type]
        elif isinstance(value, list):
            node, strategy, merge_key = _lookup(struct, key)
            original[key] = _merge_list_handler(old, value, node, strategy, merge_key, deleting)  # type: ignore[arg-type]
        else:
            original[key] = value
    return original


def _take(original: dict[str, Any], key: str, value: Any) -> None:
    _discard_nulls(value)
    value, keep = _remove_directives(value)
    if keep:
        original[key] = value
    else:
        original.pop(key, None)


def _directive_in_map(patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        del patch[_DIRECTIVE]
        return patch
    if directive == "delete":
        return {}
    raise _bad_patch_type(directive, patch)


def _bad_patch_type(directive: Any, patch: dict[str, Any]) -> StrategicMergeError:
    return StrategicMergeError(f"unknown patch type: {directive} in map: {_go_map(patch)}")


def _go_map(value: Any) -> str:
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go_map(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go_map, value))}]"
    return "<nil>" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _discard_nulls(value: Any) -> None:
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
        for item in value.values():
            _discard_nulls(item)
    elif isinstance(value, list):
        for item in value:
            _discard_nulls(item)


def _remove_directives(value: Any) -> tuple[Any, bool]:
    if isinstance(value, dict):
        if _DIRECTIVE in value:
            return None, False
        for key in list(value):
            value[key], keep = _remove_directives(value[key])
            if not keep:
                del value[key]
        return value, True
    if isinstance(value, list):
        pairs = [_remove_directives(item) for item in value]
        return [item for item, keep in pairs if keep], True
    return value, True


def _apply_retain_keys(original: dict[str, Any], patch: dict[str, Any]) -> None:
    if _RETAIN not in patch:
        return
    retained = patch.pop(_RETAIN)
    if not isinstance(retained, list):
        raise BadPatchFormat(_BAD_RETAIN)
    for key, value in patch.items():
        if value is None or key.startswith((_DELETE_PRIMITIVES, _ORDER)):
            continue
        if key not in retained:
            raise BadPatchFormat(_BAD_RETAIN)
    for key in [key for key in original if key not in retained]:
        del original[key]


def _merge_ordered_lists(original: dict[str, Any], patch: dict[str, Any], struct: Struct | None) -> None:
    """Lists with a ``$setElementOrder``: merged here, and taken out of the patch."""
    for directive in [key for key in patch if key.startswith(_ORDER)]:
        order = patch.pop(directive)
        key = directive.removeprefix(_ORDER)
        if not isinstance(order, list):
            raise StrategicMergeError(f"expected a []interface {{}}, but received a {type(order).__name__}")
        for side in (original, patch):
            if key in side and not isinstance(side[key], list):
                raise BadPatchFormat(_BAD_ORDER)
        node, strategy, merge_key = _lookup(struct, key)
        old, new = original.get(key), patch.pop(key, None)
        _check_order(new or [], order, merge_key)
        if old is None and new is None:
            continue
        if new is None:
            merged = old
        elif old is None:
            merged = _remove_directives(new)[0]
        else:
            merged = _merge_list_handler(list(old), new, node, strategy, merge_key, False)
        mine, theirs = _partition(merged, order, merge_key)  # type: ignore[arg-type]
        original[key] = _in_order(mine, theirs, order, old or [], merge_key)


def _check_order(items: list[Any], order: list[Any], merge_key: str) -> None:
    if not items or not order:
        return
    wanted = [
        _identity(item, merge_key) for item in items if not (isinstance(item, dict) and _DIRECTIVE in item)
    ]
    at = 0
    for entry in order:
        if at < len(wanted) and _identity(entry, merge_key) == wanted[at]:
            at += 1
    if at < len(wanted):
        raise StrategicMergeError(
            f"The order in patch list:\n{_go_map(items)}\n doesn't match {_ORDER[:-1]} list:\n"
            f"{_go_map(order)}\n"
        )


def _merge_list_handler(
    original: list[Any],
    patch: list[Any],
    node: SchemaNode | None,
    strategy: str,
    merge_key: str,
    deleting: bool,
) -> list[Any]:
    if strategy != "merge" and not deleting:
        return patch
    if not original and not patch:
        return original
    kinds = {
        dict if isinstance(item, dict) else list if isinstance(item, list) else str
        for item in [*original, *patch]
    }
    if list in kinds:
        raise BadPatchFormat("lists of lists are not supported")
    if len(kinds) > 1:
        raise StrategicMergeError("list element types are not identical")
    if kinds == {str}:
        if deleting:
            return [item for item in original if item not in patch]
        merged = list(dict.fromkeys([*original, *patch]))
    else:
        if not merge_key:
            raise StrategicMergeError("cannot merge lists without merge key")
        original, patch = _special_elements(original, patch, merge_key)
        merged = _plain_elements(list(original), patch, merge_key, _inner(node))
    mine, theirs = _partition(merged, patch, merge_key)
    return _in_order(mine, theirs, patch, original, merge_key)


def _special_elements(
    original: list[dict[str, Any]], patch: list[dict[str, Any]], merge_key: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    plain: list[dict[str, Any]] = []
    replace = False
    for item in patch:
        directive = item.get(_DIRECTIVE)
        if _DIRECTIVE not in item:
            plain.append(item)
        elif directive == "delete":
            wanted = _identity(item, merge_key)
            original = [old for old in original if old.get(merge_key) != wanted]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise StrategicMergeError("merging lists cannot yet be specified in the patch")
        else:
            raise _bad_patch_type(directive, item)
    return (plain, []) if replace else (original, plain)


def _plain_elements(
    original: list[dict[str, Any]], patch: list[dict[str, Any]], merge_key: str, struct: Struct | None
) -> list[dict[str, Any]]:
    for item in patch:
        wanted = _identity(item, merge_key)
        for index, old in enumerate(original):
            if old.get(merge_key) == wanted:
                original[index] = _merge_map(old, item, struct)
                break
        else:
            original.append(item)
    return original


def _identity(item: Any, merge_key: str) -> Any:
    if not merge_key:
        return item
    if not isinstance(item, dict) or merge_key not in item:
        raise StrategicMergeError(f"map: {_go_map(item)} does not contain declared merge key: {merge_key}")
    return item[merge_key]


def _partition(items: list[Any], by: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """Items that occur in ``by``, and the others."""
    present = [_identity(entry, merge_key) for entry in by]
    mine: list[Any] = []
    theirs: list[Any] = []
    for item in items:
        (mine if _identity(item, merge_key) in present else theirs).append(item)
    return mine, theirs


def _in_order(
    mine: list[Any], theirs: list[Any], mine_order: list[Any], their_order: list[Any], merge_key: str
) -> list[Any]:
    """Patch items in the patch's order, server-only items in the server's, merged by the server's order."""
    mine_at = _positions(mine_order, merge_key)
    their_at = _positions(their_order, merge_key)

    def place(item: Any, positions: list[Any]) -> int:
        identity = _identity(item, merge_key)
        return positions.index(identity) if identity in positions else len(positions)

    mine = sorted(mine, key=lambda item: place(item, mine_at))
    theirs = sorted(theirs, key=lambda item: place(item, their_at))
    merged: list[Any] = []
    left, right = 0, 0
    while left < len(theirs) and right < len(mine):
        a, b = _identity(theirs[left], merge_key), _identity(mine[right], merge_key)
        if a in their_at and b in their_at and their_at.index(a) < their_at.index(b):
            merged.append(theirs[left])
            left += 1
        else:
            merged.append(mine[right])
            right += 1
    return merged + theirs[left:] + mine[right:]


def _positions(order: list[Any], merge_key: str) -> list[Any]:
    return [item.get(merge_key) if merge_key and isinstance(item, dict) else item for item in order]
