"""A policy with a false ``may_grant`` grants nothing, and the engine does not ask it."""

from __future__ import annotations

from itertools import product

import pytest
from queue_views import claim, queue

from windlass.plugins.kai.victims import KaiPreemptionPolicy
from windlass.plugins.queues.protection import PreemptionDelay
from windlass.plugins.queues.victims import WindlassPreemptionPolicy
from windlass.plugins.volcano.evictions.bundles import SURPLUS, Bundles
from windlass.plugins.volcano.tiers import VolcanoTiers
from windlass.spi.objects import Dialect
from windlass.spi.victims import PreemptionTerms

ACTIONS = ("consolidation", "reclaim", "preempt", "gangreclaim", "gangpreempt", "gangpreempt" + SURPLUS)
PLUGINS = {
    type(plugin).__name__: plugin
    for plugin in (
        KaiPreemptionPolicy(),
        WindlassPreemptionPolicy(),
        PreemptionDelay(),
        Bundles(VolcanoTiers([], arguments={})),
    )
}


@pytest.mark.parametrize("name", PLUGINS)
def test_it_grants_only_where_it_says_that_it_may(name: str) -> None:
    plugin, granted = PLUGINS[name], 0
    for action, dialect in product(ACTIONS, Dialect):
        rich = queue("q", held=0, fair=9, dialect=dialect)
        terms = isinstance(plugin.preemption_terms(claim(action, rich, priority=5)), PreemptionTerms)
        granted += terms
        assert plugin.may_grant(action, dialect) or not terms, (action, dialect)
    assert bool(granted) is (name != "PreemptionDelay")
