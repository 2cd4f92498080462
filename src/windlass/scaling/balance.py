"""Split of a budget of workers among the stages of a batch, by measured service times. Pure.

The work that a stage has left is its seconds for each item times the items that have not left
it. Workers are given out so that all stages end at the same time: with *n* workers a stage ends
after work / *n*. While much is left, this is the split with the highest throughput; a row that
waits between two stages counts as work of the later one, so no spool stays full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BACKLOG_SECONDS = 10.0
"""Seconds of work that wait for each worker of a device stage from which on it gets one more."""
DRAINED_SECONDS = 1.0
"""Seconds of work that wait for each worker below which a device stage loses the one more."""
SLACK = 1.1
"""Factor by which a stage of another pool than the slowest stage may be faster than that."""


@dataclass(frozen=True, slots=True)
class StageLoad:
    """Work of one stage.

    ``pool``: name of the budget that its workers are taken from. ``devices``: whether a worker
    holds a device, so that one without work costs something.
    ``seconds``: measured seconds of one item; 0: not measured yet.
    ``remaining``: number of items that have not left the stage. ``waiting``: those of them that it
    could begin now. ``full``: rows before it are as many as may wait.
    ``current``: workers now. ``least``, ``most``: bounds while items remain.
    """

    name: str
    pool: str
    seconds: float
    remaining: int
    waiting: int = 0
    full: bool = False
    current: int = 0
    least: int = 1
    most: int = 1_000_000
    devices: bool = False


def balance(stages: Sequence[StageLoad], budgets: Mapping[str, int]) -> dict[str, int]:
    """Return the number of workers of each stage. A stage without items left gets none.

    ``budgets``: pool → number of workers. The least numbers are given even beyond the budget.
    """
    work = _work(stages)
    found = {stage.name: 0 for stage in stages}
    for pool in dict.fromkeys(stage.pool for stage in stages):
        members = [stage for stage in stages if stage.pool == pool and stage.remaining > 0]
        found |= _share(members, work, budgets.get(pool, 0))
    return _trimmed(stages, work, found)


def _work(stages: Sequence[StageLoad]) -> dict[str, float]:
    """Return the seconds of work that each stage has left. One without a measurement is as fast as the mean."""
    known = [stage.seconds for stage in stages if stage.seconds > 0]
    mean = sum(known) / len(known) if known else 1.0
    return {stage.name: (stage.seconds or mean) * stage.remaining for stage in stages}


def _share(members: Sequence[StageLoad], work: Mapping[str, float], budget: int) -> dict[str, int]:
    """Give each worker of a pool to the stage that would end last."""
    found = {stage.name: min(stage.least, stage.most) for stage in members}
    left = budget - sum(found.values())
    open_stages = [stage for stage in members if found[stage.name] < stage.most]
    while left > 0 and open_stages:
        slowest = max(open_stages, key=lambda one: work[one.name] / max(found[one.name], 1e-9))
        found[slowest.name] += 1
        left -= 1
        if found[slowest.name] >= slowest.most:
            open_stages.remove(slowest)
    return found


def _trimmed(
    stages: Sequence[StageLoad], work: Mapping[str, float], found: Mapping[str, int]
) -> dict[str, int]:
    """Return the numbers without the workers that would wait for a stage of another pool."""
    ends = {stage.name: work[stage.name] / found[stage.name] for stage in stages if found[stage.name]}
    if not ends or len({stage.pool for stage in stages}) < 2:
        return dict(found)
    last = max(ends.values())
    slowest = next(stage for stage in stages if ends.get(stage.name) == last)
    return {
        stage.name: found[stage.name]
        if stage.pool == slowest.pool or not found[stage.name]
        else _needed(stage, work[stage.name] / last, found[stage.name])
        for stage in stages
    }


def _needed(stage: StageLoad, workers: float, most: int) -> int:
    """Return how many workers keep up with the slowest stage.

    ``workers``: exact number. A device is never taken for a part of it: the number is rounded
    down, and one more works while rows have piled up.
    """
    least = min(stage.least, most)
    if not stage.devices:
        return max(least, min(most, -int(-workers * SLACK // 1)))
    count = max(least, min(most, int(workers + 1e-9)))
    piled = stage.waiting * stage.seconds / max(count, 1)
    more = stage.full or piled > BACKLOG_SECONDS
    more = more or (stage.current > count and piled > DRAINED_SECONDS)
    return min(most, count + 1) if more else count
