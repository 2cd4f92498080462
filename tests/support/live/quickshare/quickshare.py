"""The default order of time-sharing (``learned``) with seconds in place of minutes: who has run for a second ranks
behind who has just come, and a start is left alone for a third of a second. As a third party's plug-in: for every
scheduler that has this folder on its path and names it in its configuration."""

from __future__ import annotations

from windlass.plugins.timeshare.gittins import LearnedSharing, Tuning
from windlass.spi.configuration import PluginOption


def made(option: PluginOption) -> LearnedSharing:
    return LearnedSharing(tuning=Tuning(first_seconds=1.0, quantum_seconds=0.3))
