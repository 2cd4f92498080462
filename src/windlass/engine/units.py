"""What goes together when room is taken from a group.

Tasks beyond the minimum go one by one, last in task order first; what makes up the minimum goes whole.
"""

from __future__ import annotations

from windlass.engine.groups import ACTIVE, GroupEntry, TaskEntry


def victim_units(group: GroupEntry) -> list[list[TaskEntry]]:
    """The group's tasks that hold something and do not terminate, in the order in which they would go:
    extras one by one, then the core as one. A group below its minimum is all core."""
    active = sorted(
        (entry for entry in group.tasks.values() if entry.state in ACTIVE),
        key=group.place_of,
        reverse=True,
    )
    roles = dict(group.active_roles)
    spare = group.active + group.succeeded - group.minimum if group.ready() else 0
    extras: list[list[TaskEntry]] = []
    core: list[TaskEntry] = []
    for entry in active:
        role = entry.task.role
        bound = group.roles_enforced.get(role)
        if spare > 0 and (bound is None or roles.get(role, 0) > bound):
            spare -= 1
            roles[role] = roles.get(role, 0) - 1
            extras.append([entry])
        else:
            core.append(entry)
    return [*extras, core] if core else extras
