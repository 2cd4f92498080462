"""The rounds in which time is shared run on seconds in place of minutes."""

from __future__ import annotations

import pytest
from timeshare_workloads import QUICK_SHARE

from windlass.plugins.registry import build
from windlass.plugins.timeshare.gittins import LearnedSharing
from windlass.spi.configuration import PluginOption, SchedulerConfig


def test_schedulers_with_the_folder_on_their_path_find_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(QUICK_SHARE))
    warned: list[str] = []
    plugins, actions = build(SchedulerConfig(plugins=(PluginOption("quickshare"),)), warned.append)
    (found,) = [one for one in plugins if isinstance(one, LearnedSharing) and one.tuning.first_seconds == 1.0]
    assert found.tuning.quantum_seconds < 1.0
    assert plugins.index(found) > min(plugins.index(p) for p in plugins if isinstance(p, LearnedSharing))
    assert "timeshare" in actions
    assert not warned
