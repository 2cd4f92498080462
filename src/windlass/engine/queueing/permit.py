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
        self._policies = plugins.consenting
        self._statement = statement
        self._table = table
        self.asked = bool(self._policies)
        """True if any plugin takes part."""

    def rejection(self, group: GroupEntry | None, now: float) -> Rejection | None:
        """Return why the statement may not be committed for ``group``; ``None`` if it may."""
        placed, going = self._statement.deciding()
        if not placed and not going:
            return None
        gang = EngineGangView(group) if group is not None else None
        outcome = ProposedDecision(gang, self._looks(placed, now), self._looks(going, now))
        agreed = []
        for policy in self._policies:
            rejection = policy.consents(outcome)
            if rejection is not None:
                for earlier in reversed(agreed):
                    earlier.withdrawn(outcome)
                return rejection
            agreed.append(policy)
        return None

    def _looks(self, entries: list[TaskEntry], now: float) -> tuple[EngineTaskView, ...]:
        gangs: dict[int, EngineGangView] = {}
        found = []
        for entry in entries:
            group = entry.group
            if group is None:
                raise RuntimeError(f"{entry.key} belongs to no group")
            gang = gangs.setdefault(id(group), EngineGangView(group))
            found.append(EngineTaskView(entry, gang, now, self._table.nodes[entry.row]))
        return tuple(found)
