"""YAML as sigs.k8s.io/yaml reads it: the scalars of go-yaml v2, keys become text, no time stamps.

PyYAML differs from go-yaml in its implicit types: it reads ``2026-01-01`` as a date and ``1:30`` as
ninety, and takes ``1e3`` and ``y`` for text. Manifests must mean the same here as with kubectl.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

try:
    from yaml import CSafeLoader as _Base
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeLoader as _Base

_INTEGER = re.compile(r"[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TRUE = {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
_FALSE = {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}
_LETTERS = frozenset(("y", "Y", "n", "N"))
_NULL = {"", "~", "null", "Null", "NULL"}


class YamlError(ValueError):
    """The text is no YAML; the message names the line."""


def load_one(text: bytes | str) -> tuple[Any, list[str]]:
    """The single document of ``text`` and the paths of keys that occur twice. Raises :class:`YamlError`."""
    documents = list(load_all(text))
    if len(documents) > 1:
        raise YamlError(f"expected one document, found {len(documents)}")
    return documents[0] if documents else (None, [])


def load_all(text: bytes | str, *, letters_are_text: bool = False) -> Iterator[tuple[Any, list[str]]]:
    """Every document of ``text``, in order, each with its duplicate keys. Raises :class:`YamlError`.

    ``letters_are_text``: a plain ``y`` or ``n`` is text, as other writers of YAML mean it, not a boolean.
    """
    loader = _Base(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            duplicates: list[str] = []
            builder = _Builder(duplicates, letters_are_text)
            yield (builder.value(node, "") if node is not None else None), duplicates
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise YamlError(f"{line}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise YamlError(str(error)) from None
    except RecursionError:
        raise YamlError("the document is nested too deeply") from None
    finally:
        loader.dispose()


def build(node: Node) -> tuple[Any, list[str]]:
    """The value of a composed node and its duplicate keys, for readers that also want its line numbers."""
    duplicates: list[str] = []
    return _Builder(duplicates).value(node, ""), duplicates


class _Builder:
    """Nodes to values. Aliases may multiply a document; ``budget`` bounds what one text may grow to."""

    def __init__(self, duplicates: list[str], letters_are_text: bool = False) -> None:
        self.duplicates = duplicates
        self.letters = _LETTERS if letters_are_text else frozenset()
        self.budget = 1_000_000

    def value(self, node: Node, path: str) -> Any:
        self.budget -= 1
        if self.budget < 0:
            raise YamlError("document contains excessive aliasing")
        if isinstance(node, ScalarNode):
            return node.value if node.value in self.letters else scalar(node)
        if isinstance(node, SequenceNode):
            return [self.value(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        assert isinstance(node, MappingNode)  # there are three kinds of nodes
        return self.mapping(node, path)

    def mapping(self, node: MappingNode, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, item in node.value:
            if not isinstance(key_node, ScalarNode):
                raise YamlError(f"line {key_node.start_mark.line + 1}: a key must be plain text")
            if key_node.tag == "tag:yaml.org,2002:merge" or (key_node.value == "<<" and not key_node.style):
                self.merge(merged, item, path)
                continue
            key = _key(key_node)
            inner = f"{path}.{key}" if path else key
            if key in result and inner not in self.duplicates:
                self.duplicates.append(inner)
            result[key] = self.value(item, inner)
        return merged | result if merged else result

    def merge(self, merged: dict[str, Any], node: Node, path: str) -> None:
        for source in node.value if isinstance(node, SequenceNode) else [node]:
            value = self.value(source, path)
            if not isinstance(value, dict):
                raise YamlError("map merge requires map or sequence of maps as the value")
            for key, item in value.items():
                merged.setdefault(key, item)


def positions(node: Node) -> dict[str, int]:
    """Path of every key and item below ``node`` (``spec.tasks[0].name``) → its line, from 1."""
    lines: dict[str, int] = {}
    _note_positions(node, "", lines)
    return lines


def _note_positions(node: Node, path: str, lines: dict[str, int]) -> None:
    below: list[tuple[str, Node, Node]] = []
    if isinstance(node, MappingNode):
        below = [(f"{path}.{key.value}" if path else str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, SequenceNode):
        below = [(f"{path}[{at}]", value, value) for at, value in enumerate(node.value)]
    for inner, marked, value in below:
        lines[inner] = marked.start_mark.line + 1
        _note_positions(value, inner, lines)


def _key(node: ScalarNode) -> str:
    value = scalar(node)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return value if isinstance(value, str) else str(value)


def scalar(node: ScalarNode) -> Any:
    """The value of a scalar by go-yaml's implicit rules; quoted and block scalars are text."""
    text: str = node.value
    if node.style:
        return text
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    first = text[0]
    if not (first.isdigit() or first in "+-."):
        return text
    return _number(text)


def _number(text: str) -> Any:
    if _INTEGER.fullmatch(text):
        plain = text.replace("_", "")
        digits = plain.lstrip("+-")
        base = {"0b": 2, "0o": 8, "0x": 16}.get(digits[:2], 8 if len(digits) > 1 and digits[0] == "0" else 10)
        number = int(digits[2:] if digits[:2] in ("0b", "0o", "0x") else digits, base)
        return -number if plain[0] == "-" else number
    if _FLOAT.fullmatch(text):
        number = float(text)
        return int(number) if number.is_integer() and abs(number) < 1e21 else number
    return text
