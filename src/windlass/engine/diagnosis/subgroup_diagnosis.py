"""Diagnosis of sub-groups that each have a domain, but not all at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.engine.diagnosis.domain_diagnosis import DomainDiagnosis, SubGroupDiagnoser
from windlass.engine.groups.entries import GroupEntry, MissingSubGroup, NextTasks
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement


def diagnose_together(
    state: ClusterState,
    gang_allocator: GangAllocator,
    statement: Statement,
    group: GroupEntry,
    step: NextTasks,
) -> tuple[list[str], DomainDiagnosis] | None:
    """Place the sub-groups of a step one after the other, and diagnose the first that fails.

    Return the sub-groups that were placed before it, and its diagnosis; ``None`` if
    none fails. The statement is empty afterwards.
    """
    diagnoser = SubGroupDiagnoser(state, gang_allocator.domain_selector, group)
    placed: list[str] = []
    result: DomainDiagnosis | None = None
    for subgroup in _parts(step):
        option = NextTasks(subgroup.batches, subgroup.members, {}, extra=True, options=[subgroup])
        if not gang_allocator.try_group(statement, group, option).done:
            result = diagnoser.diagnose(subgroup)
            break
        placed.append(subgroup.name)
    statement.rollback()
    return (placed, result) if placed and result is not None else None


def _parts(step: NextTasks) -> Iterator[MissingSubGroup]:
    """Yield the sub-groups with tasks of their own: the needed ones first."""
    seen: set[str] = set()
    for subgroup in (*_needed(step.root), *step.pool):
        if subgroup.members and subgroup.batches and subgroup.name not in seen:
            seen.add(subgroup.name)
            yield subgroup


def _needed(subgroup: MissingSubGroup | None) -> Iterator[MissingSubGroup]:
    """Yield the sub-group without its children, then those of them that are needed."""
    if subgroup is None:
        return
    yield MissingSubGroup(subgroup.name, subgroup.members, subgroup.batches)
    for child in subgroup.children[: subgroup.needed_children]:
        yield from _needed(child)
