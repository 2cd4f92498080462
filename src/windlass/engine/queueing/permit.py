"""Permit check: plugins approve or reject a decision before its commit.

See :mod:`windlass.spi.consent`.
"""

from __future__ import annotations

from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.nodes.table import NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queueing.tier_views import EngineGangView, EngineTaskView
from windlass.engine.state.statement import Statement
from windlass.spi.consent import ProposedDecision
from windlass.spi.plugins import Rejection

PAUSE_SECONDS = 10.0
"""Pause in seconds after a rejection.

A later approval may follow without any change in the cluster.
"""


class PermitCheck:
    """Permit check of the open statement. Without such plugins it costs nothing."""

    def __init__(self, plugins: PluginSet, statement: Statement, table: NodeTable) -> None:
        self._plugins = plugins.permits
        self._statement = statement
        self._table = table
        self.is_active = bool(self._plugins)
        """True if any plugin takes part."""

    def rejection(self, group: GroupEntry | None, now: float) -> Rejection | None:
        """Return why the statement may not be committed for ``group``; ``None`` if it may."""
        placed, victims = self._statement.proposed()
        if not placed and not victims:
            return None
        gang = EngineGangView(group) if group is not None else None
        decision = ProposedDecision(gang, self._views(placed, now), self._views(victims, now))
        approved = []
        for plugin in self._plugins:
            rejection = plugin.permit(decision)
            if rejection is not None:
                for earlier in reversed(approved):
                    earlier.withdrawn(decision)
                return rejection
            approved.append(plugin)
        return None

    def _views(self, entries: list[TaskEntry], now: float) -> tuple[EngineTaskView, ...]:
        gangs: dict[int, EngineGangView] = {}
        views = []
        for entry in entries:
            group = entry.group
            if group is None:
                raise RuntimeError(f"{entry.key} belongs to no group")
            gang = gangs.setdefault(id(group), EngineGangView(group))
            views.append(EngineTaskView(entry, gang, now, self._table.nodes[entry.row]))
        return tuple(views)
