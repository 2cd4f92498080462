"""``plugins.nodes.label_masks``: Kubernetes' label requirements, over nodes at once."""

from __future__ import annotations

import pytest

from windlass.plugins.nodes.label_masks import describe, expression_mask, term_mask
from windlass.spi.label_match import labels_match, value_matches
from windlass.spi.objects import Expression, NodeTerm

CASES = [
    ("In", ("a", "b"), "a", True),
    ("In", ("a", "b"), "c", False),
    ("In", ("a",), None, False),
    ("In", ("",), "", True),
    ("NotIn", ("a",), "a", False),
    ("NotIn", ("a",), "b", True),
    ("NotIn", ("a",), None, True),
    ("Exists", (), "", True),
    ("Exists", (), None, False),
    ("DoesNotExist", (), None, True),
    ("DoesNotExist", (), "x", False),
    ("Gt", ("4",), "5", True),
    ("Gt", ("4",), "4", False),
    ("Gt", ("4",), "3", False),
    ("Lt", ("4",), "5", False),
    ("Gt", ("4",), "x", False),
    ("Gt", ("4",), "1_000", False),
    ("Lt", ("1_000",), "4", False),
    ("Gt", ("-5",), "-4", True),
    ("Gt", ("4",), str(1 << 63), False),
    ("Gt", ("4",), None, False),
    ("Gt", (), "5", False),
    ("Lt", ("4",), "3", True),
    ("Lt", ("4",), "10", False),
    ("Lt", ("-3",), "-4", True),
    ("Nonsense", ("4",), "4", False),
]


@pytest.mark.parametrize(("operator", "values", "value", "expected"), CASES)
def test_one_value(operator: str, values: tuple[str, ...], value: str | None, expected: bool) -> None:
    assert value_matches(operator, values, value) is expected


# A node of the test language cannot have an empty label value.
@pytest.mark.parametrize(("operator", "values", "value", "expected"), [c for c in CASES if c[2] != ""])
def test_many_nodes_are_judged_as_one(view, operator, values, value, expected) -> None:
    nodes = view(f"n1 k={value}" if value is not None else "n1", "n2 k=other", "n3")
    mask = expression_mask(Expression("k", operator, values), nodes)
    assert mask.tolist() == [
        expected,
        value_matches(operator, values, "other"),
        value_matches(operator, values, None),
    ]


def test_all_requirements_must_hold() -> None:
    both = (Expression("a", "In", ("1",)), Expression("b", "Exists"))
    assert labels_match(both, {"a": "1", "b": ""})
    assert not labels_match(both, {"a": "1"})
    assert labels_match((), {})


def test_terms(view) -> None:
    nodes = view("n1 a=1", "n2 a=1 b=2", "n3")
    a, b = Expression("a", "In", ("1",)), Expression("b", "Exists")
    assert term_mask(NodeTerm(labels=(a, b)), nodes).tolist() == [False, True, False]
    by_name = NodeTerm(fields=(Expression("metadata.name", "In", ("n3", "n1")),))
    assert term_mask(by_name, nodes).tolist() == [True, False, True]
    unknown = NodeTerm(fields=(Expression("metadata.uid", "In", ("n3",)),))
    assert term_mask(unknown, nodes).tolist() == [False, False, False]
    assert term_mask(NodeTerm(), nodes).tolist() == [False, False, False]
    assert term_mask(NodeTerm(labels=(a,), fields=by_name.fields), nodes).tolist() == [True, False, False]


PRODUCT = "nvidia.com/gpu.product"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("NVIDIA-H100-80GB", [True, True, False, False]),  # no node has it exactly: it is a beginning
        ("NVIDIA-H100", [True, True, False, False]),
        ("NVIDIA-H100-80GB-HBM3", [True, False, False, False]),
        ("NVIDIA-A100", [False, False, True, False]),  # some node has it exactly: it means that
        ("NVIDIA-H1", [False, False, False, False]),  # a beginning ends at a dash
    ],
)
def test_a_product_without_its_form_factor_stands_for_all_of_its_kind(view, asked, expected) -> None:
    nodes = view(
        f"n1 {PRODUCT}=NVIDIA-H100-80GB-HBM3",
        f"n2 {PRODUCT}=NVIDIA-H100-80GB-PCIe",
        f"n3 {PRODUCT}=NVIDIA-A100",
        f"n4 {PRODUCT}=NVIDIA-A100-SXM4-40GB",
    )
    assert expression_mask(Expression(PRODUCT, "In", (asked,)), nodes).tolist() == expected


def test_other_labels_are_taken_at_their_word(view) -> None:
    assert not expression_mask(Expression("tier", "In", ("a",)), view("n1 tier=a-b")).any()
    not_in = Expression(PRODUCT, "NotIn", ("NVIDIA-H100",))
    assert expression_mask(not_in, view(f"n1 {PRODUCT}=NVIDIA-H100-80GB")).all()


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (Expression("a", "In", ("1",)), "a=1"),
        (Expression("a", "In", ("1", "2")), "a in (1, 2)"),
        (Expression("a", "NotIn", ("1",)), "a!=1"),
        (Expression("a", "NotIn", ("1", "2")), "a not in (1, 2)"),
        (Expression("a", "Exists"), "a"),
        (Expression("a", "DoesNotExist"), "!a"),
        (Expression("a", "Gt", ("1",)), "a > 1"),
        (Expression("a", "Lt", ("1",)), "a < 1"),
        (Expression("a", "Odd", ("1",)), "a Odd (1)"),
    ],
)
def test_describe(expression: Expression, text: str) -> None:
    assert describe(expression) == text
