"""Errors of a workflow's definition and of its evaluation."""

from __future__ import annotations


class EvaluationError(Exception):
    """ParsedExpression, reference or argument that cannot be evaluated. It makes the node an error."""


class UnknownReference(EvaluationError):
    """Reference to a value that no scope has."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{{{{{name}}}}} has no value here")
        self.name = name
