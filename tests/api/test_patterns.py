"""Patterns of HyperNodes mean what they mean to Go's ``regexp``."""

from __future__ import annotations

import pytest

from windlass.api.patterns import PatternError, compiled

NAMES = ("node-0", "node-1", "other", "a.b", "axb", "node-٣")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("^node-[[:digit:]]+$", {"node-0", "node-1"}),
        ("^[[:^alpha:]]", set()),
        (r"^node-\d$", {"node-0", "node-1"}),  # ASCII digits, unlike Python's
        (r"^node-\pN$", {"node-0", "node-1", "node-٣"}),
        (r"^node-\p{Arabic}|\p{Nd}$", {"node-0", "node-1", "node-٣"}),
        (r"^\Qa.b\E$", {"a.b"}),
        (r"(?i)^NODE-0\z", {"node-0"}),
        (r"^(?P<kind>node)-(?<number>1)$", {"node-1"}),
        (r"(?U)^o.*r$", {"other"}),
        (r"^n(?i)ODE-1", {"node-1"}),
        (r"\x{6E}ode-0", {"node-0"}),
        (r"^[a-z&&[^n]]", {"other", "a.b", "axb", "node-0", "node-1", "node-٣"} - set(NAMES)),
        ("a{,2}", set()),  # literal braces
        ("node-1|other", {"node-1", "other"}),
        ("de-1", {"node-1"}),  # unanchored
        (r"\\C|other", {"other"}),
    ],
)
def test_syntax_of_go(pattern: str, names: set[str]) -> None:
    assert {name for name in NAMES if compiled(pattern).search(name)} == names


@pytest.mark.parametrize(
    "pattern",
    [
        "node-(?=1)",
        "(?!x)",
        "(?<=a)b",
        "(?<!a)b",
        r"(a)\1",
        "(?P<x>a)(?P=x)",
        "(a)(?(1)b|c)",
        "a*+",
        "(?>a)",
        "(?#words)",
        "(?x) a",
        "(?a)a",
        "(?L)a",
        "(?u)a",
        r"a\Z",
        r"\u0061",
        r"\N{DIGIT ONE}",
        "[[:digits:]]",
        r"\p{Nope}",
        "a{1001}",
        "(a{100}){100}",
        "a**",
        "(",
        "[a",
        "a\\",
        r"\C",
        r"\h",
    ],
)
def test_what_go_refuses_is_refused(pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternError) as refused:
        compiled(pattern)
    assert str(refused.value)
    assert capfd.readouterr() == ("", "")
