"""Placement of roles together or apart, from Volcano's ``task-topology`` annotations.

``volcano.sh/task-topology-affinity`` and ``…-anti-affinity`` are groups of roles,
``ps,worker;ps,evaluator``. The roles of one group prefer to be together (or apart). A
group of one role refers to the pods of that role. ``…-task-order`` states the roles
that are placed first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from windlass.api import annotations as names
from windlass.spi.objects import RolePreferences

ANNOTATIONS = (names.TASKS_TOGETHER, names.TASKS_EXCLUSIVE, names.TASKS_ORDER)
"""Annotations of a PodGroup that are about roles."""


def role_preferences(annotations: Mapping[str, str], gang: str, role: str) -> RolePreferences | None:
    """Return the preferences of a role's pods; ``None`` if no annotation mentions the role."""
    together, exclusive, order = (annotations.get(name, "") for name in ANNOTATIONS)
    return _preferences(together, exclusive, order, gang, role) if role else None


@lru_cache(maxsize=4096)
def _preferences(together: str, exclusive: str, order: str, gang: str, role: str) -> RolePreferences | None:
    partners, avoided = _partners(together, role), _partners(exclusive, role)
    places = list(_entries(order, ","))
    if not partners and not avoided and role not in places:
        return None
    return RolePreferences(
        gang, role, partners, avoided, places.index(role) if role in places else len(places)
    )


def _partners(text: str, role: str) -> tuple[str, ...]:
    """Return the other roles in the role's groups, or the role itself if it is alone in one."""
    partners: set[str] = set()
    for group in _entries(text, ";"):
        members = list(_entries(group, ","))
        if role in members:
            partners.update([role] if len(members) == 1 else (other for other in members if other != role))
    return tuple(sorted(partners))


def _entries(text: str, mark: str) -> Iterable[str]:
    return filter(None, (entry.strip() for entry in text.split(mark)))
