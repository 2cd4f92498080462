"""Expressions: one safe grammar for conditions, references and retries."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.workflow.language import depends, expressions, jsonpath
from windlass.workflow.language.errors import EvaluationError, UnknownReference
from windlass.workflow.language.scope import Scope, condition

VALUES = Scope(
    {
        "inputs.parameters.n": "7",
        "tasks.a-b.outputs.result": '{"score": 88, "labels": ["x", "y"]}',
        "lastRetry.exitCode": "2",
        "item": {"name": "linux", "cores": 4},
        "item.name": "linux",
    },
    absent={"tasks.skipped"},
)


def test_conditions_after_substitution_as_in_argo() -> None:
    table = {
        "heads == heads": True,
        "heads-1 == heads-1": True,
        "'a b' != \"a c\"": True,
        "10 > 9 && 2 <= 2": True,
        "( tails == heads ) || ( 3.5 < 4 )": True,
        "!(a == b)": True,
        "heads =~ '^he'": True,
        "x in ('x', 'y')": None,
        'x in ["x", "y"]': True,
        "true": True,
        "true == true": True,
        "-1 < 0": True,
        "'' == ''": True,
        "": True,
        "Succeeded == Failed": False,
    }
    for text, expected in table.items():
        if expected is None:
            with pytest.raises(EvaluationError):
                condition(text)
        else:
            assert condition(text) is expected, text


def test_condition_that_is_not_boolean_or_not_complete_is_an_error() -> None:
    for text in ("heads", "3", "heads ==", "== 3", "(a == b", "a == b c", "a < 3", "'open"):
        with pytest.raises(EvaluationError):
            condition(text)


def test_expressions_over_values() -> None:
    table = {
        "asInt(inputs.parameters.n) + 1": 8,
        "inputs.parameters['n'] + '!'": "7!",
        "jsonpath(tasks['a-b'].outputs.result, '$.score') >= 90": False,
        "fromJson(tasks['a-b'].outputs.result).labels[1]": "y",
        "tasks.skipped.outputs.result ?? 'none'": "none",
        "asInt(lastRetry.exitCode) > 1 ? 'again' : 'stop'": "again",
        "filter([1, 5, 9], {# > 4})": [5, 9],
        "map([{a: 1}, {a: 2}], {.a})": [1, 2],
        "item.name + string(item.cores)": "linux4",
        "'in' in ['in', 'out'] and not (1 == 2)": True,
        "sprig.upper('a') + sprig.trim(' b ')": "Ab",
        "len([1, 2, 3][1:])": 2,
        "2 ** 10 % 100": 24,
    }
    for text, expected in table.items():
        assert VALUES.evaluate(text) == expected, text


def test_expressions_reach_nothing_but_values() -> None:
    for text in (
        "__import__('os')",
        "open('/etc/passwd')",
        "().__class__",
        "x = 3",
    ):
        with pytest.raises(EvaluationError):
            VALUES.evaluate(text)
    assert VALUES.evaluate("item.__class__") is None
    with pytest.raises(UnknownReference, match="no value here"):
        VALUES.evaluate("inputs.parameters.other")
    with pytest.raises(EvaluationError, match="nested"):
        expressions.parse("(" * 500 + "1" + ")" * 500)
    with pytest.raises(EvaluationError, match="1024"):
        VALUES.evaluate("2 ** 100000000")


def test_substitution_leaves_unknown_references_and_refuses_strict_ones() -> None:
    assert VALUES.text("n={{inputs.parameters.n}} {{ inputs.parameters.n }} {{x.y}}") == "n=7 7 {{x.y}}"
    text = VALUES.text("{{=asInt(inputs.parameters.n) * 2}}|{{=tasks.z.outputs.result}}")
    assert text == "14|{{=tasks.z.outputs.result}}"
    assert VALUES.text("[{{tasks.skipped.outputs.parameters.p}}]") == "[]"
    assert VALUES.apply({"{{item.name}}": [{"a": "{{item}}"}]}) == {
        "linux": [{"a": '{"name":"linux","cores":4}'}]
    }
    with pytest.raises(UnknownReference):
        VALUES.text("{{tasks.z.outputs.result}}", strict=("tasks.",))


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for action in (lambda: condition(text), lambda: Scope().evaluate(text), lambda: depends.parse(text)):
        with contextlib.suppress(EvaluationError):
            action()


NAMES = st.sampled_from(["A", "b-2", "c_3"])
RESULTS = st.sampled_from(["", *depends.RESULTS])
TREES = st.recursive(
    st.tuples(NAMES, RESULTS).map(lambda pair: (".".join(filter(None, pair)), pair)),
    lambda inner: st.one_of(
        inner.map(lambda one: (f"!({one[0]})", ("not", one[1]))),
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(
            lambda found: (f"({found[0][0]} {found[1]} {found[2][0]})", (found[1], found[0][1], found[2][1]))
        ),
    ),
    max_leaves=8,
)


@given(TREES, st.dictionaries(NAMES, st.frozensets(st.sampled_from(depends.RESULTS))))
def test_depends_equals_its_truth_table(tree: tuple[str, tuple], results: dict[str, frozenset[str]]) -> None:
    def truth(node: tuple) -> bool:
        if node[0] == "not":
            return not truth(node[1])
        if node[0] in ("&&", "||"):
            sides = [truth(node[1]), truth(node[2])]
            return all(sides) if node[0] == "&&" else any(sides)
        name, result = node
        wanted = {result} if result else {"Succeeded", "Skipped", "Daemoned"}
        return bool(wanted & results.get(name, frozenset()))

    assert depends.parse(tree[0]).holds(results, {}) is truth(tree[1])


def test_filters_of_json_paths_and_layouts_of_dates() -> None:
    people = {"all": [{"name": "a", "age": 43}, {"name": "b", "age": 42}, {"name": "c"}]}
    table = {
        "$.all[?(@.age>42 && @.age<44)].name": ["a"],
        "$.all[?(@.name == 'b' || @.age >= 43)].name": ["a", "b"],
        "$.all[?(@.age)].name": ["a", "b"],
        "$.all[?(@.age != 42)].name": ["a", "c"],
        "$.all[?(@.name > 4)].name": [],
    }
    for path, expected in table.items():
        assert jsonpath.find(people, path) == expected, path
    with pytest.raises(EvaluationError, match="of a JSONPath is not understood"):
        jsonpath.find(people, "$.all[?(@.age ~ 4)]")
    scope = Scope({"t": "2023-11-14T22:13:20Z"})
    assert scope.evaluate("sprig.date('Mon, 02 Jan 2006 15:04:05 MST', t)") == "Tue, 14 Nov 2023 22:13:20 UTC"
    with pytest.raises(EvaluationError, match="is not a time"):
        scope.evaluate("sprig.date('2006', 'noon')")
