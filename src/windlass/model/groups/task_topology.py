"""Which roles of a job want to be on one node, and which apart: Volcano's ``task-topology`` annotations of a
PodGroup → what each of its pods wishes.

``volcano.sh/task-topology-affinity`` and ``…-anti-affinity`` are groups of roles, ``ps,worker;ps,evaluator``: the
roles of one group want to be together (or apart), a group of one role means the pods of that role.
``…-task-order`` says which roles are placed first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from windlass.api import annotations as names
from windlass.spi.objects import RolePreferences

ANNOTATIONS = (names.TASKS_TOGETHER, names.TASKS_EXCLUSIVE, names.TASKS_ORDER)
"""Annotations of a PodGroup that are about roles."""


def role_preferences(annotations: Mapping[str, str], gang: str, role: str) -> RolePreferences | None:
    """What the pods of a role wish; ``None`` for one that is not spoken of."""
    together, apart, order = (annotations.get(name, "") for name in ANNOTATIONS)
    return _wishes(together, apart, order, gang, role) if role else None


@lru_cache(maxsize=4096)
def _wishes(together: str, apart: str, order: str, gang: str, role: str) -> RolePreferences | None:
    near, far = _others(together, role), _others(apart, role)
    places = list(_words(order, ","))
    if not near and not far and role not in places:
        return None
    return RolePreferences(gang, role, near, far, places.index(role) if role in places else len(places))


def _others(text: str, role: str) -> tuple[str, ...]:
    """With whom the role is in a group; itself where it is alone in one."""
    found: set[str] = set()
    for group in _words(text, ";"):
        members = list(_words(group, ","))
        if role in members:
            found.update([role] if len(members) == 1 else (other for other in members if other != role))
    return tuple(sorted(found))


def _words(text: str, mark: str) -> Iterable[str]:
    return filter(None, (word.strip() for word in text.split(mark)))
