"""Remedies keep their word on random clusters, from the end of a plan.

With the minimum that is stated the group starts in the next cycle. With the limits that
are stated, which the API server accepts, no limit holds the group.
"""

from __future__ import annotations

from example_counts import examples
from hypothesis import given, settings
from remedy_scenes import LIMIT_CODES, MINIMUM, NOW, Planned, Scene, limits_named, scenes

from windlass.api.reasons import SuggestedChangeKind

SETTINGS = settings(max_examples=examples(100))


def check(scene: Scene) -> None:
    planned = Planned(scene)
    for key, explanation in planned.waiting():
        for remedy in explanation.remedies:
            stated = MINIMUM.match(remedy)
            if stated is not None:
                tried = Planned(scene)
                tried.lower_minimum(key, int(stated[1]))
                tried.cycle()
                assert tried.started(key), (key, remedy)
            if limits := limits_named(remedy):
                tried = Planned(scene)
                for name, resource, amount in limits:
                    tried.raise_limit(name, resource, amount)
                admitted = tried.admitted()
                decision = tried.cycle()
                if decision.binds or decision.nominations or tried.admitted() - admitted - {key}:
                    continue  # it started, or another group took what the limit provides
                told = tried.engine.explain(key, NOW)
                codes = set() if told is None else {blocker.code for blocker in told.blockers}
                assert not codes & LIMIT_CODES, (key, remedy, told)
        for change in explanation.changes:
            tried = Planned(scene)
            if change.kind is SuggestedChangeKind.MIN_MEMBER:
                tried.lower_minimum(key, int(change.wanted))
            elif change.kind is SuggestedChangeKind.QUEUE_LIMIT:
                fields = zip(
                    change.target.split(","), change.field.split(","), change.wanted.split(","), strict=True
                )
                for name, field, amount in fields:
                    resource = field.removeprefix("capability[").removesuffix("]")
                    tried.raise_limit(name.rpartition("/")[2], resource, amount)
            else:
                continue
            others = {bind.group for bind in tried.cycle().binds} - {key}
            assert others or tried.started(key), (key, change)


@SETTINGS
@given(scenes())
def test_each_stated_remedy_helps(scene: Scene) -> None:
    check(scene)
