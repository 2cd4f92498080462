"""Structural schemas: pruning, defaults, validation, and the check of a schema itself."""

from __future__ import annotations

import copy
from typing import Any

from definitions import FULL_SCHEMA, thing

from windlass.api.structural import checks, defaulting, formats, objects, openapi_rules, pruning, values
from windlass.api.structural.definition import version_rank

BASE = {"size": 1}
INVALID: list[tuple[dict[str, Any], str, str]] = [
    ({}, "spec.size", "Required value"),
    ({"size": "x"}, "spec.size", 'spec.size in body must be of type integer: "string"'),
    ({"size": 0}, "spec.size", "should be greater than or equal to 1"),
    ({"size": 101}, "spec.size", "should be less than or equal to 100"),
    (BASE | {"ratio": 1}, "spec.ratio", "should be less than 1"),
    (BASE | {"even": 3}, "spec.even", "should be a multiple of 2"),
    (BASE | {"small": 1 << 40}, "<nil>", "must be of type integer with format int32"),
    (BASE | {"color": "green"}, "spec.color", 'Unsupported value: "green": supported values: "red", "blue"'),
    (BASE | {"code": "abc"}, "spec.code", "should match '^[0-9]+$'"),
    (BASE | {"code": ""}, "spec.code", "should be at least 1 chars long"),
    (BASE | {"code": "123456"}, "spec.code", "Too long: may not be more than 5 bytes"),
    (BASE | {"when": "today"}, "spec.when", 'must be of type date-time: "today"'),
    (BASE | {"flags": list("abcd")}, "spec.flags", "Too many: 4: must have at most 3 items"),
    (BASE | {"flags": []}, "spec.flags", "should have at least 1 items"),
    (BASE | {"limits": {}}, "spec.limits", "should have at least 1 properties"),
    (BASE | {"limits": {"a": 1, "b": 1, "c": 1}}, "spec.limits", "Too many: 3"),
    (
        BASE | {"source": {}},
        "<nil>",
        '"spec.source" must validate one and only one schema (oneOf). Found none',
    ),
    (BASE | {"source": {"url": "u", "path": "p"}}, "<nil>", "Found 2 valid alternatives"),
    (BASE | {"either": {"c": 1}}, "<nil>", '"spec.either" must validate at least one schema (anyOf)'),
    (BASE | {"both": 3}, "<nil>", '"spec.both" must validate all the schemas (allOf)'),
    (BASE | {"never": "root"}, "<nil>", '"spec.never" must not validate the schema (not)'),
    (BASE | {"port": True}, "spec.port", 'must be of type integer,string: "boolean"'),
    (BASE | {"rows": [{}]}, "spec.rows[0].name", "Required value"),
]


def test_invalid_values_are_named_with_their_path() -> None:
    for spec, field, words in INVALID:
        found = values.validate(FULL_SCHEMA, thing("a", spec))
        assert any(error.field == field and words in error.message for error in found), (spec, found)


def test_valid_object_has_no_errors() -> None:
    spec = {
        "size": 3.0,
        "ratio": 0.5,
        "code": "12",
        "when": "2026-01-01T00:00:00Z",
        "flags": ["a", "b"],
        "rows": [{"name": "a"}, {"name": "b"}],
        "port": "http",
        "limits": {"cpu": 1},
        "source": {"url": "u"},
        "either": {"a": "x"},
        "both": 7,
        "maybe": None,
    }
    obj = thing("a", spec)
    assert values.validate(FULL_SCHEMA, obj) == []
    assert objects.list_types(FULL_SCHEMA, obj) == []


def test_unchanged_parts_are_not_checked_again() -> None:
    old = thing("a", {"size": 0, "color": "green"})
    new = copy.deepcopy(old)
    new["spec"]["size"] = 200
    assert [error.field for error in values.validate(FULL_SCHEMA, new, "", old)] == ["spec.size"]
    assert values.validate(FULL_SCHEMA, copy.deepcopy(old), "", old) == []


def test_pruning_keeps_what_the_schema_leaves_open() -> None:
    free = {"any": {"thing": 1}, "known": {"a": "b", "gone": 1}}
    obj = thing("a", {"size": 1, "gone": 1, "free": free, "rows": [{"name": "a", "gone": 2}]})
    obj["also"] = 1
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "kept": 1}
    obj["spec"]["template"] = template
    assert pruning.prune(obj, FULL_SCHEMA) == [
        "also",
        "spec.free.known.gone",
        "spec.gone",
        "spec.rows[0].gone",
    ]
    assert obj["spec"]["free"] == {"any": {"thing": 1}, "known": {"a": "b"}}
    assert obj["spec"]["template"]["kept"] == 1


def test_defaults_replace_nulls_that_are_not_allowed() -> None:
    obj = thing(
        "a", {"size": 1, "color": None, "maybe": None, "code": None, "nested": {"level": None}, "rows": [{}]}
    )
    defaulting.fill(obj, FULL_SCHEMA)
    assert obj["spec"] == {
        "size": 1,
        "color": "red",
        "maybe": None,
        "nested": {"level": 7},
        "rows": [{"value": "none"}],
    }
    assert defaulting.has_defaults(FULL_SCHEMA)


def test_duplicates_in_sets_and_maps() -> None:
    obj = thing("a", {"flags": ["a", "b", "a", "a"], "rows": [{"name": "x"}, {"name": "x", "value": "y"}]})
    assert [(error.field, error.message) for error in objects.list_types(FULL_SCHEMA, obj)] == [
        ("spec.flags[2]", 'Duplicate value: "a"'),
        ("spec.rows[1]", 'Duplicate value: {"name":"x"}'),
    ]


def test_embedded_object_needs_its_header() -> None:
    obj = thing("a", {"template": {"apiVersion": "a/b/c", "metadata": []}})
    assert [error.field for error in objects.embedded_objects(FULL_SCHEMA, obj)] == [
        "spec.template.kind",
        "spec.template.apiVersion",
        "spec.template.metadata",
    ]


def test_schema_with_every_part_is_structural() -> None:
    assert checks.structural(FULL_SCHEMA, "s") == []
    assert openapi_rules.check(FULL_SCHEMA, "s") == []
    assert checks.defaults(FULL_SCHEMA, "s") == []


def test_formats() -> None:
    for name, good, bad in (
        ("ipv4", "10.0.0.1", "10.0.0"),
        ("ipv6", "::1", "::g"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("duration", "1h30m", "soon"),
        ("duration", "3 weeks", "3 moons"),
        ("date", "2026-01-31", "2026-02-31"),
        ("byte", "YQ==", "a"),
        ("hexcolor", "#fff", "#ff"),
        ("mac", "00:00:5e:00:53:01", "00:00"),
        ("isbn", "978-0321751041", "978-0321751042"),
        ("email", "a@b.c", "a b"),
        ("uri", "https://x.example/y", "y z"),
        ("hostname", "a.example", "-a"),
        ("k8s-short-name", "a-b", "A"),
    ):
        assert (formats.holds(name, good), formats.holds(name, bad)) == (True, False), name
    assert formats.effective("string", "no-such-format") == ""
    assert formats.effective("integer", "int32") == "int32"


def test_versions_are_ranked_as_kubernetes_does() -> None:
    ranked = sorted(["v1alpha1", "foo", "v2", "v1beta2", "v10", "v1", "v1beta1", "bar"], key=version_rank)
    assert ranked == ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo"]
