"""YAML as kubectl reads it."""

from __future__ import annotations

import pytest

from windlass.api.wire import yaml_text
from windlass.api.wire.yaml_text import YamlError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", "a"),
        ("1", 1),
        ("-1", -1),
        ("0x10", 16),
        ("010", 8),
        ("0o17", 15),
        ("0b11", 3),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1e3", 1000),
        ("-.5", -0.5),
        ("y", True),
        ("No", False),
        ("on", True),
        ("true", True),
        ("~", None),
        ("", None),
        ("2026-01-01", "2026-01-01"),
        ("1:30", "1:30"),
        ("1.2.3", "1.2.3"),
        ('"5"', "5"),
        ("'yes'", "yes"),
        ("|\n  5\n", "5\n"),
        ("500G", "500G"),
        ("NaNny", "NaNny"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    loaded, _ = yaml_text.load_one(f"x: {text}")
    assert loaded == {"x": value}
    assert type(loaded["x"]) is type(value)


def test_keys_are_text_and_duplicates_are_reported() -> None:
    value, duplicates = yaml_text.load_one("1: a\ntrue: b\nspec:\n  c: 1\n  c: 2\nlist:\n- {d: 1, d: 2}\n")
    assert value == {"1": "a", "true": "b", "spec": {"c": 2}, "list": [{"d": 2}]}
    assert duplicates == ["spec.c", "list[0].d"]


def test_anchors_and_merges() -> None:
    value, _ = yaml_text.load_one(
        "base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  z: 3\nmany:\n  <<: [{p: 1}, *b]\n"
    )
    assert value["use"] == {"x": 1, "z": 3}
    assert value["many"] == {"p": 1, "x": 1, "z": 2}


def test_several_documents() -> None:
    documents = [value for value, _ in yaml_text.load_all("a: 1\n---\n---\nb: 2\n")]
    assert documents == [{"a": 1}, None, {"b": 2}]
    assert yaml_text.load_one("") == (None, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "line [12]: did not find expected"),
        ("a: 1\n\tb: 2", "line 2"),
        ("? [a]\n: 1", "a key must be plain text"),
        ("a: 1\n---\nb: 2", "expected one document, found 2"),
        ("<<: 5", "map merge requires map"),
        ("a: &x [*x]", "line|nested|alias|excessive"),
    ],
)
def test_errors_name_the_line(text: str, words: str) -> None:
    with pytest.raises(YamlError, match=words):
        yaml_text.load_one(text)


def test_bomb_of_aliases_is_rejected() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(YamlError, match="excessive aliasing"):
        yaml_text.load_one("\n".join(lines))
