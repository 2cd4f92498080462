"""Label and field selectors: grammar, meaning, and apimachinery's words for what is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api import selectors
from windlass.api.selectors import FieldTerm, Requirement, SelectorError, parse_fields, parse_labels

LABELS = {"app": "web", "tier": "front", "n": "5"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=web,tier=back", False),
        ("app!=web", False),
        ("absent!=x", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("app notin (db,cache)", True),
        ("absent notin (x)", True),
        ("app", True),
        ("absent", False),
        ("!absent", True),
        ("! app", False),
        ("n>4", True),
        ("n<5", False),
        ("app>4", False),
        ("absent=", False),
        ("app in (web),!absent , tier", True),
    ],
)
def test_matches(text: str, matches: bool) -> None:
    assert parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a,", "found '', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
    ],
)
def test_invalid_selectors(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_labels(text)
    assert str(caught.value) == message


def test_object_form() -> None:
    selector = selectors.from_object(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front"]},
                {"key": "x", "operator": "DoesNotExist"},
                {"key": "n", "operator": "Gt", "values": ["4"]},
            ],
        }
    )
    assert selector is not None
    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web"})
    assert selectors.from_object(None) is None
    everything = selectors.from_object({})
    assert everything is not None
    assert everything.matches(None)
    assert not everything


def test_unknown_operator_is_reported() -> None:
    with pytest.raises(SelectorError, match="'Near' is not a valid label selector operator"):
        Requirement("a", "Near").matches({"a": "b"})


def test_fields() -> None:
    terms = parse_fields("spec.nodeName=n1, status.phase!=Failed,metadata.name==")
    assert terms == (
        FieldTerm("spec.nodeName", "n1"),
        FieldTerm("status.phase", "Failed", False),
        FieldTerm("metadata.name", ""),
    )
    with pytest.raises(SelectorError, match=r"invalid selector: 'a>>1'; can't understand 'a>>1'"):
        parse_fields("a>>1")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab=!,()<> in", max_size=14))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        selector = parse_labels(text)
    except SelectorError:
        return
    assert isinstance(selector.matches(LABELS), bool)
    assert bool(selector) == bool(text.strip())
