"""Workflow and graph of the open ``with`` blocks, for each thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.sdk.workflows.graphs import GraphTemplate
    from windlass.sdk.workflows.templates import TemplateBase
    from windlass.sdk.workflows.workflow import Workflow

_open = threading.local()


def workflows() -> list[Workflow]:
    """Return the open workflows, the innermost last."""
    if not hasattr(_open, "workflows"):
        _open.workflows = []
    return _open.workflows


def graphs() -> list[GraphTemplate]:
    """Return the open graphs, the innermost last."""
    if not hasattr(_open, "graphs"):
        _open.graphs = []
    return _open.graphs


def add_template(template: TemplateBase) -> None:
    """Add a template to the open workflow. Without one, its first task adds it."""
    if workflows():
        workflows()[-1].add(template)
