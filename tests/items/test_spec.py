"""Specification of a batch: defaults, and everything that is told before a worker starts."""

from __future__ import annotations

import pytest

from windlass.items.expressions import ExpressionError, compile_expression
from windlass.items.prompts import Prompt, PromptError
from windlass.items.spec import SpecError, check, parse_batch


def document(**spec: object) -> dict[str, object]:
    return {"metadata": {"namespace": "ns", "name": "job", "uid": "u"}, "spec": spec}


def test_a_job_without_anything_has_the_documented_defaults() -> None:
    batch = parse_batch(document())
    assert (batch.runtime.name, batch.input.source, batch.batching.mode) == (
        "builtin-generate",
        "",
        "Dynamic",
    )
    assert (batch.batching.size, batch.batching.max_items, batch.batching.target_seconds) == (64, 1024, 60.0)
    assert (batch.items.retries, batch.items.max_failed_percent) == (2, 1.0)
    assert batch.outputs.quality is None
    assert check(document()) == []


def test_what_the_contract_names_is_read() -> None:
    batch = parse_batch(
        document(
            input={"source": "inline", "format": "jsonl", "idField": "id", "inline": '{"id": 1}\n'},
            runtimeRef={"name": "process"},
            template={"spec": {"containers": [{"command": ["python3", "-c"], "args": ["pass"]}]}},
            items={"retries": 1, "retryBackoff": "500ms", "speculative": {"enabled": True}},
            outputs={"path": "/out/rows.jsonl", "quality": {"min": 80}},
            grouping={"by": "category", "perGroup": {"toys": {"weight": 3, "priority": "high"}}},
        )
    )
    assert batch.runtime.command == ("python3", "-c", "pass")
    assert batch.items.retry_backoff == 0.5
    assert batch.outputs.quality is not None
    assert (batch.outputs.quality.scorer, batch.outputs.quality.min) == ("", 80)
    assert batch.grouping.per_group["toys"].priority == 10_000


def test_source_and_format_follow_from_what_is_given() -> None:
    cases = {
        ("path", "/data/rows.csv"): ("file", "csv"),
        ("url", "https://example.org/rows.csv?x=1"): ("http", "csv"),
        ("url", "s3://bucket/rows.parquet"): ("s3", "parquet"),
        ("inline", "{}"): ("inline", "jsonl"),
    }
    for (name, value), expected in cases.items():
        batch = parse_batch(document(input={name: value}))
        assert (batch.input.source, batch.input.format) == expected


def test_bad_fields_are_told_by_path() -> None:
    with pytest.raises(SpecError) as error:
        parse_batch(document(items={"retries": -1}, batching={"mode": "Eager"}, input={"format": "xml"}))
    assert dict(error.value.problems) == {
        "spec.items.retries": "Invalid value: -1: must be greater than or equal to 0",
        "spec.batching.mode": 'Unsupported value: "Eager": supported values: "Dynamic", "Fixed"',
        "spec.input.format": 'Unsupported value: "xml": supported values: "csv", "dir", "jsonl", "parquet"',
    }


def test_problems_name_the_field_and_what_is_there() -> None:
    rows = '{"id": "a", "name": "x"}\n{"id": "a", "name": "y"}\n'
    found = check(
        document(
            input={"inline": rows, "prompt": "Describe {title}"},
            outputs={"path": "out.jsonl", "quality": {"scorer": "best"}},
            runtimeRef={"name": "vllm"},
            grouping={"by": "open('x')"},
        )
    )
    paths = [path for path, _ in found]
    assert paths == [
        "spec.input.inline",
        "spec.input.prompt",
        "spec.grouping.by",
        "spec.outputs.path",
        "spec.runtimeRef.name",
        "spec.outputs.quality.scorer",
    ]
    messages = dict(found)
    assert messages["spec.input.inline"] == "Duplicate value: row 2: duplicate id 'a': row 1 has it, too"
    assert "no row has the column 'title': the rows have id, name" in messages["spec.input.prompt"]


def test_expressions_compute_and_run_no_code() -> None:
    row = {"category": "Toys", "n": 7, "meta": {"lang": "de"}, "text": "a b c"}
    cases = {
        "category": "Toys",
        "lower(category)": "toys",
        "meta.lang": "de",
        "n // 2": 3,
        "'long' if len(text) > 3 else 'short'": "long",
        "category + '-' + meta.lang": "Toys-de",
        "text[0:3]": "a b",
        "n in [1, 7] and not n < 3": True,
    }
    assert {text: compile_expression(text)(row) for text in cases} == cases
    for text in (
        "__import__('os')",
        "[x for x in n]",
        "lambda: 1",
        "n +",
        "category.upper()",
        "a" * 2000 + "+1",
    ):
        with pytest.raises(ExpressionError):
            compile_expression(text)
    for text in ("missing", "text * 1000000", "n / 0", "10 ** 100000"):
        with pytest.raises(ExpressionError):
            compile_expression(text)(row)


def test_prompts_name_a_missing_column() -> None:
    assert Prompt("Say {{{name}}} of {a.b}").render({"name": "x", "a": {"b": 2}}) == "Say {x} of 2"
    with pytest.raises(PromptError, match="the prompt needs the column 'title': the row has name"):
        Prompt("{title}").render({"name": 1})
    for template in ("{", "a}", "{}"):
        with pytest.raises(PromptError):
            Prompt(template)


def test_reading_rows_leaves_the_limit_of_other_tables_alone() -> None:
    import csv
    import io

    from windlass.items.rows import read_csv

    before = csv.field_size_limit()
    rows = list(read_csv(io.BytesIO(b"id,text\n1," + b"x" * 200_000 + b"\n")))
    assert len(rows[0].values["text"]) == 200_000
    assert csv.field_size_limit() == before
