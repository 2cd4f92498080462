"""Hash of a pod template, as the label ``pod-template-hash`` and in names of revisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

POD_TEMPLATE_HASH = "pod-template-hash"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_encode = msgspec.json.Encoder(order="sorted").encode


def template_hash(template: Any, collisions: int | None = None) -> str:
    """Return the hash of a template, in letters that form no words.

    ``collisions``: number of objects of this name that hold another template.
    """
    data = _encode(template)
    if collisions is not None:
        data += collisions.to_bytes(8, "little")
    return safe_letters(str(fnv32(data)))


def fnv32(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def safe_letters(text: str) -> str:
    return "".join(_LETTERS[ord(char) % len(_LETTERS)] for char in text)


def without_hash(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the template without the label of its hash."""
    metadata = template.get("metadata") or {}
    labels = {
        name: text for name, text in (metadata.get("labels") or {}).items() if name != POD_TEMPLATE_HASH
    }
    plain = {name: value for name, value in metadata.items() if name not in ("labels", "creationTimestamp")}
    if labels:
        plain["labels"] = labels
    return {"metadata": plain, "spec": template.get("spec") or {}}
