"""Masks of nodes for requirements on labels.

A requirement is evaluated once for each distinct value, then mapped to the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.spi.label_match import value_matches
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Expression, NodeTerm

PRODUCT_SUFFIX = ".product"
"""Labels of accelerator models (``nvidia.com/gpu.product``, ``amd.com/gpu.product``, …)."""


def expression_mask(expression: Expression, nodes: NodeView) -> BoolArray:
    """Return a mask of the nodes with a label that satisfies the requirement.

    A product is often requested without its form factor. So if no node has a value of
    ``In`` on a product label, the value also matches those that begin with it and a
    dash: for example ``NVIDIA-H100-80GB`` matches ``NVIDIA-H100-80GB-HBM3``.
    """
    texts = nodes.label_values(expression.key)
    values = expression.values
    if expression.operator == "In" and expression.key.endswith(PRODUCT_SUFFIX):
        carried = nodes.label_carried(expression.key)
        values = _with_variants(values, [text for code, text in enumerate(texts) if code and carried[code]])
    verdicts = [value_matches(expression.operator, values, None)]
    verdicts += [value_matches(expression.operator, values, text) for text in texts[1:]]
    return np.array(verdicts, dtype=np.bool_)[nodes.label(expression.key)]


def _with_variants(values: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    variants = list(values)
    for value in values:
        if value not in known:
            variants += [text for text in known if text.startswith(value + "-")]
    return tuple(variants)


def term_mask(term: NodeTerm, nodes: NodeView) -> BoolArray:
    """Return a mask of the nodes that satisfy the whole term.

    An empty term matches no node (Kubernetes).
    """
    if not term.labels and not term.fields:
        return np.zeros(nodes.size, dtype=np.bool_)
    mask = np.ones(nodes.size, dtype=np.bool_)
    for expression in term.labels:
        mask &= expression_mask(expression, nodes)
    for expression in term.fields:
        mask &= np.array(
            [
                expression.key == "metadata.name"
                and value_matches(expression.operator, expression.values, name)
                for name in nodes.names()
            ],
            dtype=np.bool_,
        ).reshape(nodes.size)
    return mask


def any_term_mask(terms: Sequence[NodeTerm], nodes: NodeView) -> BoolArray:
    """Return a mask of the nodes that satisfy at least one of the terms."""
    mask = np.zeros(nodes.size, dtype=np.bool_)
    for term in terms:
        mask |= term_mask(term, nodes)
    return mask


def describe(expression: Expression) -> str:
    """Return the requirement as text for users: ``tier in (a, b)``, ``!gone``, ``cores > 4``."""
    key, values = expression.key, ", ".join(expression.values)
    match expression.operator:
        case "In":
            return f"{key}={values}" if len(expression.values) == 1 else f"{key} in ({values})"
        case "NotIn":
            return f"{key}!={values}" if len(expression.values) == 1 else f"{key} not in ({values})"
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case "Gt":
            return f"{key} > {values}"
        case "Lt":
            return f"{key} < {values}"
    return f"{key} {expression.operator} ({values})"
