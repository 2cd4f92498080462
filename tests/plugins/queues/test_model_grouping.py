"""Work on one model goes in a row, window by window."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from windlass.plugins.extra_scores import ON_TOP
from windlass.plugins.queues.model_grouping import MODEL, ModelGrouping
from windlass.spi.configuration import PluginOption
from windlass.spi.objects import Dialect, Group


def view(key: str, model: str, created: float, dialect: Dialect = Dialect.WINDLASS) -> Any:
    notes = {MODEL: model} if model else {}
    return SimpleNamespace(spec=Group(key, "q", 0, 1, created=created, annotations=notes, dialect=dialect))


def order(plugin: ModelGrouping, *views: Any) -> list[str]:
    return [v.spec.key for v in sorted(views, key=lambda v: (plugin.group_key(v), v.spec.created))]


def test_models_go_in_a_row_and_later_windows_wait() -> None:
    views = [view("1", "b", 0), view("2", "a", 5), view("3", "b", 10), view("4", "a", 61), view("5", "", 30)]
    assert order(ModelGrouping(60.0), *views) == ["5", "2", "1", "3", "4"]


def test_groups_of_other_apis_stand_as_they_are() -> None:
    plugin = ModelGrouping(60.0, [Dialect.WINDLASS])
    assert plugin.group_key(view("1", "b", 500, Dialect.KAI)) == plugin.group_key(
        view("2", "a", 5, Dialect.KAI)
    )


@pytest.mark.parametrize("window", ["0s", "soon", "-1h"])
def test_window_of_no_length_is_rejected(window: str) -> None:
    with pytest.raises(ValueError, match="is not a duration above 0"):
        ON_TOP["model-grouping"](PluginOption("model-grouping", arguments={"window": window}), [])
