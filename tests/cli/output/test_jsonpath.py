"""kubectl's JSONPath templates."""

from __future__ import annotations

import pytest

from windlass.cli.output.jsonpath import PathError, render

POD = {
    "kind": "List",
    "items": [
        {
            "metadata": {"name": "a", "labels": {"x.y/z": "1"}, "n": 3},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]},
            "on": True,
        },
        {"metadata": {"name": "b", "n": 5}, "status": {}, "on": False},
    ],
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{.kind}", "List"),
        (".kind", "List"),
        ("kind", "List"),
        ("{$.kind}", "List"),
        ("{.items[*].metadata.name}", "a b"),
        ("{.items[0].metadata.name}", "a"),
        ("{.items[-1].metadata.name}", "b"),
        ("{.items[0:1].metadata.name}", "a"),
        ("{.items[0,1].metadata.name}", "a b"),
        ("{.items[9].metadata.name}", ""),
        ("{.items[0].metadata.labels.x\\.y/z}", "1"),
        ("{.items[0].metadata.labels['x.y/z']}", "1"),
        ("{.items[0]['metadata'].name}", "a"),
        ("{..name}", "a b"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.on}{"\\n"}{end}', "a\ttrue\nb\tfalse\n"),
        ('{.items[0].status.conditions[?(@.type=="Ready")].status}', "True"),
        ("{.items[?(@.metadata.n>3)].metadata.name}", "b"),
        ("{.items[?(@.metadata.labels)].metadata.name}", "a"),
        ("name={.items[0].metadata.name};", "name=a;"),
        ("{.items[0].metadata.labels}", '{"x.y/z":"1"}'),
        ("{.missing.path}", ""),
        ('{.items[?(@.metadata.n>"x")].metadata.name}', ""),
    ],
)
def test_templates(template: str, expected: str):
    assert render(template, POD) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{.items[",
        "{.items[0]",
        "{range .items[*]}x",
        "{end}",
        "{.items[x y]}",
        '{"open}',
        "{.items[?(@.a==b)]}",
    ],
)
def test_what_cannot_be_read_is_told(template: str):
    with pytest.raises(PathError):
        render(template, POD)
