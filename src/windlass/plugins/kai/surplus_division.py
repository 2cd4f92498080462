"""Division of one resource by deserved amounts, priority and weight: KAI's rule, in
exact integers.

Source: KAI Scheduler, plugin ``proportion``, package ``resource_division``. F is the
share, D the deserved amount, R the usable amount of the queue (its limit or its demand,
whichever is smaller):

1. F = min(D, R). An unlimited D is the whole total. If these sums reach the total, the
   division is complete: deserved amounts are not scaled down.
2. The remainder is divided by priority, highest first. Each priority has several
   rounds. In a round each queue with F < R and a weight has a claim of ``remaining · w
   / Σw``. It gets R - F if that is not larger, otherwise its claim rounded down to
   whole units (devices, millicores, bytes). Another round follows if some queue took
   less than its claim.
3. The remainder of rounding is divided by priority again. The largest fractions cut off
   in the last round get one unit each (or the rest), then the older queue, then by
   name.

Weights follow past usage if it is known: ``w = max(0, n + k·(n - u))``. Here n is the
queue's part of the weights in this round and u its part of the past usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

USAGE_SCALE = 1_000_000
"""Scale of past usage: parts per million."""


@dataclass(slots=True)
class ShareClaim:
    """Claim of one queue in the division of one resource, and its result.

    ``deserved``: ``None`` is unlimited. ``usage``: the queue's part of the past usage
    in parts per million.
    """

    name: str
    deserved: int | None
    requestable: int
    weight: Fraction | int = 1
    priority: int = 0
    created: float = 0.0
    usage: int = 0
    given: int = 0
    surplus: int = 0
    rounding: int = 0
    weights: Fraction | int = 0
    """Sum of weights in the first round that the claim took part in."""
    cut: int = 0
    """Numerator of the fraction that rounding cut off in the last round."""

    @property
    def share(self) -> int:
        return self.given + self.surplus + self.rounding


def divide(total: int, unit: int, claims: Sequence[ShareClaim], k_value: Fraction | int = 0) -> None:
    """Divide ``total`` among the claims; ``unit`` is one whole of the resource."""
    remaining = total
    for claim in claims:
        due = total if claim.deserved is None else claim.deserved
        claim.given = max(0, min(due, claim.requestable))
        remaining -= claim.given
    if remaining <= 0:
        return
    if len(claims) == 1 and not (k_value and claims[0].usage):
        claim = claims[0]
        if claim.requestable > claim.given and claim.weight > 0:
            claim.weights = claim.weight
            claim.surplus, claim.rounding = rest(remaining, unit, claim.requestable - claim.given)
        return
    levels: dict[int, list[ShareClaim]] = {}
    for claim in claims:
        if claim.requestable > claim.given and claim.weight > 0:
            levels.setdefault(claim.priority, []).append(claim)
    order = sorted(levels, reverse=True)
    unsatisfied = {}
    for priority in order:
        remaining, unsatisfied[priority] = _rounds(remaining, unit, levels[priority], k_value)
    for priority in order:
        for claim in sorted(unsatisfied[priority], key=lambda c: (-c.cut, c.created, c.name)):
            if remaining <= 0:
                return
            claim.rounding = min(unit, remaining)
            remaining -= claim.rounding


def rest(remaining: int, unit: int, wanted: int) -> tuple[int, int]:
    """Return surplus and rounding of a single claim for ``wanted`` more units."""
    surplus = min(wanted, remaining)
    if surplus == wanted:
        return surplus, 0
    surplus = remaining // unit * unit
    return surplus, remaining - surplus


def _rounds(
    remaining: int, unit: int, claims: list[ShareClaim], k_value: Fraction | int
) -> tuple[int, list[ShareClaim]]:
    """Run the rounds of one priority; return the remainder and the claims still below R."""
    total_weight = sum(claim.weight for claim in claims)
    for claim in claims:
        claim.weights = total_weight
    again = True
    while again and claims:
        again = False
        weights = _weights(claims, k_value)
        whole = sum(weights)
        if not whole:
            break
        unsatisfied = []
        taken = 0
        for claim, weight in zip(claims, weights, strict=True):
            wanted = claim.requestable - claim.given - claim.surplus
            scaled = remaining * weight
            if wanted * whole <= scaled:
                again = again or wanted * whole < scaled
                claim.surplus += wanted
                taken += wanted
            else:
                units = scaled // (whole * unit) * unit
                claim.cut = scaled - units * whole
                claim.surplus += units
                taken += units
                unsatisfied.append(claim)
        claims = unsatisfied
        remaining -= taken
    return remaining, claims


def _weights(claims: Sequence[ShareClaim], k_value: Fraction | int) -> list[int]:
    """Return the weights of this round as integers of one scale."""
    plain = _integers([claim.weight for claim in claims])
    if not k_value or not any(claim.usage for claim in claims):
        return plain
    whole = sum(plain)
    # n + k·(n - u), times the sum of the weights and the scale of the usage
    bent = [
        (1 + k_value) * weight * USAGE_SCALE - k_value * claim.usage * whole
        for claim, weight in zip(claims, plain, strict=True)
    ]
    return _integers([max(Fraction(0), Fraction(weight)) for weight in bent])


def _integers(weights: Iterable[Fraction | int]) -> list[int]:
    exact = list(weights)
    if all(type(weight) is int for weight in exact):
        return [int(weight) for weight in exact]
    scale = lcm(*(Fraction(weight).denominator for weight in exact))
    return [int(weight * scale) for weight in exact]
