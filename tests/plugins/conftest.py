"""A node table to ask plugins about, without an engine round it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cluster_dsl import node

from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView


@pytest.fixture
def view() -> Callable[..., TableView]:
    """``view("n1 gpu=8", "n2 cordoned")``: all rows of a table of these nodes."""

    def build(*texts: str) -> TableView:
        table = NodeTable()
        for text in texts:
            table.upsert(node(text))
        return TableView(table)

    return build
