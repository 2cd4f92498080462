"""One decision from several recommendations: merge, bounds, quota, steps, cool-down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from windlass.scaling.recommendation import Recommendation, Replicas


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a decision in addition to the user's minimum and maximum.

    ``quota``: replicas for which the queue has quota; ``None``: unlimited.
    ``quota_words``: how the quota comes about, in words.
    ``step``: replicas come and go in multiples of it, counted from zero (a gang of shards).
    ``cooldown_seconds``: no removal of replicas within this time after a change.
    ``hold``: why nothing may change now, in words; empty if it may.
    ``hold_growth``: why there may be no more replicas now.
    """

    quota: int | None = None
    quota_words: str = "quota of the queue"
    step: int = 1
    cooldown_seconds: float = 300.0
    hold: str = ""
    hold_growth: str = ""


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """Change of the number of replicas, or why there is none.

    ``wanted``: merged recommendation before the limits. ``arithmetic``: one line in words.
    ``overrides``: limits that changed the recommendation, in words.
    """

    before: int
    after: int
    wanted: int
    arithmetic: str
    overrides: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Return whether the number of replicas changes."""
        return self.after != self.before


def decide(
    recommendations: Sequence[Recommendation], replicas: Replicas, limits: Limits, since_change: float | None
) -> ScalingDecision:
    """Merge the recommendations and apply the limits.

    ``since_change``: seconds since the last change; ``None``: there was none.
    The largest recommendation above the present number is taken. A smaller number is
    taken only if every recommender asks for fewer, and then the largest of them. A
    recommender without a value prevents fewer replicas, as a failing metric of an HPA
    does.
    """
    before = replicas.current
    merged, words = _merge(recommendations, before)
    decision = ScalingDecision(before, merged, merged, words)
    for limit in (_held, _bounded, _within_quota, _in_steps):
        decision = limit(decision, replicas, limits)
    decision = _cooled(decision, limits, since_change)
    stay = "1 replica stays" if before == 1 else f"{before} replicas stay"
    ending = f": {before} → {decision.after}" if decision.changes else f": {stay}"
    return replace(decision, arithmetic=decision.arithmetic + ending)


def _merge(recommendations: Sequence[Recommendation], before: int) -> tuple[int, str]:
    if not recommendations:
        return before, "no recommender"
    chosen = max(recommendations, key=lambda each: each.replicas)
    failing = [each for each in recommendations if each.error]
    if chosen.replicas < before and failing:
        return before, f"{chosen.arithmetic}; not fewer, since {failing[0].source} has no value"
    if chosen.replicas == before and failing:
        chosen = failing[0]
    return chosen.replicas, chosen.arithmetic


def _held(decision: ScalingDecision, replicas: Replicas, limits: Limits) -> ScalingDecision:
    if limits.hold and decision.changes:
        return _limited(decision, decision.before, limits.hold)
    if limits.hold_growth and decision.after > decision.before:
        return _limited(decision, decision.before, limits.hold_growth)
    return decision


def _bounded(decision: ScalingDecision, replicas: Replicas, limits: Limits) -> ScalingDecision:
    after = replicas.clamp(decision.after)
    if after < decision.after:
        return _limited(decision, after, f"at most {after} (maximum)")
    if after > decision.after:
        return _limited(decision, after, f"at least {after} (minimum)")
    return decision


def _within_quota(decision: ScalingDecision, replicas: Replicas, limits: Limits) -> ScalingDecision:
    """Growth ends at the quota. What runs above it is the scheduler's to reclaim."""
    if limits.quota is None or decision.after <= max(limits.quota, decision.before):
        return decision
    after = max(limits.quota, decision.before)
    return _limited(decision, after, f"at most {after} ({limits.quota_words})")


def _in_steps(decision: ScalingDecision, replicas: Replicas, limits: Limits) -> ScalingDecision:
    if limits.step <= 1 or not decision.changes:
        return decision
    after = decision.after // limits.step * limits.step
    if after < replicas.minimum:
        after += limits.step
    if after == decision.after:
        return decision
    if after > replicas.maximum:
        return _limited(decision, decision.before, f"no multiple of {limits.step} is within the bounds")
    return _limited(decision, after, f"{after} in steps of {limits.step}")


def _cooled(decision: ScalingDecision, limits: Limits, since_change: float | None) -> ScalingDecision:
    if decision.after >= decision.before or since_change is None or since_change >= limits.cooldown_seconds:
        return decision
    left = limits.cooldown_seconds - since_change
    return _limited(decision, decision.before, f"not fewer for another {left:.0f} s (cool-down)")


def _limited(decision: ScalingDecision, after: int, words: str) -> ScalingDecision:
    overrides = (*decision.overrides, words)
    return replace(decision, after=after, arithmetic=f"{decision.arithmetic}; {words}", overrides=overrides)
