"""Reports of the engine about groups: the last one of each."""

from __future__ import annotations

from windlass.engine.decision import GroupStatus


class GroupReports:
    """The engine's last report about each group, if there is anything to report."""

    def __init__(self) -> None:
        self._reports: dict[str, GroupStatus] = {}

    def put(self, report: GroupStatus) -> None:
        self._reports[report.group] = report

    def get(self, group: str) -> GroupStatus | None:
        return self._reports.get(group)

    def forget(self, group: str) -> None:
        self._reports.pop(group, None)

    def pending(self) -> list[str]:
        """Return the groups that are reported to wait."""
        return [group for group, report in self._reports.items() if report.explanation is not None]
