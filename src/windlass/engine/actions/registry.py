"""Registry of actions by name.

One name may stand for several actions. Each serves the queues of its own queue API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from windlass.engine.actions.allocate import Allocate
from windlass.engine.actions.context import Action, ActionContext
from windlass.engine.actions.preempt import PreemptAction
from windlass.engine.actions.stale_gang import StaleGangEviction
from windlass.engine.actions.timeshare import TimeShare
from windlass.engine.actions.volcano_backfill import VolcanoBackfill
from windlass.engine.actions.volcano_enqueue import VolcanoEnqueue
from windlass.engine.actions.volcano_evict import VolcanoPreempt, VolcanoReclaim
from windlass.engine.actions.volcano_shuffle import VolcanoShuffle

Factory = Callable[[ActionContext], Action]

ACTIONS: Mapping[str, tuple[Factory, ...]] = {
    "allocate": (Allocate,),
    "consolidation": (partial(PreemptAction, "consolidation"),),
    "reclaim": (partial(PreemptAction, "reclaim"),),
    "preempt": (partial(PreemptAction, "preempt"),),
    "gangpreempt-surplus": (partial(PreemptAction, "gangpreempt-surplus"),),
    "gangpreempt": (partial(PreemptAction, "gangpreempt"),),
    "gangreclaim-surplus": (partial(PreemptAction, "gangreclaim-surplus"),),
    "gangreclaim": (partial(PreemptAction, "gangreclaim"),),
    "stalegangeviction": (StaleGangEviction,),
    "timeshare": (TimeShare,),
    "volcano-enqueue": (VolcanoEnqueue,),
    "volcano-shuffle": (VolcanoShuffle,),
    "volcano-backfill": (VolcanoBackfill,),
    "volcano-preempt": (VolcanoPreempt,),
    "volcano-reclaim": (VolcanoReclaim,),
}


def make_actions(names: Iterable[str], context: ActionContext) -> tuple[Action, ...]:
    """Return new actions of these names in order, each with its own state.

    Raises ``ValueError`` for an unknown name.
    """
    found: list[Action] = []
    for name in names:
        factories = ACTIONS.get(name)
        if factories is None:
            raise ValueError(f"there is no action {name!r}; there are {', '.join(sorted(ACTIONS))}")
        found += [factory(context) for factory in factories]
    return tuple(found)
