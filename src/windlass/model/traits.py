"""What a run-time model is told of a group."""

from __future__ import annotations

from windlass.predict.model import Traits
from windlass.spi.objects import Group


def traits_of(group: Group) -> Traits:
    """The namespace stands for its owner."""
    namespace, _, name = group.key.partition("/")
    return Traits(namespace, group.queue, name.removeprefix("pod:"), max(group.min_member, 1))
