"""How one resource is divided by stated amounts, priority and weight: KAI's rule, in exact integers.

Source: KAI Scheduler, plugin ``proportion``, package ``resource_division``. With F the share, D the
deserved amount, R what the queue can make use of (the smaller of its limit and its demand):

1. F = min(D, R); an unlimited D is the whole total. If these sums reach the total, that is all:
   deserved amounts are not scaled down.
2. What remains goes by priority, highest first. Inside one priority, in rounds, each queue with F < R
   and a weight has a claim of ``remaining · w / Σw``: it gets R - F if that is no more, else its claim
   rounded down to whole units (devices, millicores, bytes). Another round follows if some queue took
   less than its claim.
3. What rounding left over goes, again by priority, one unit each (or what is left) to the largest
   fractions cut off in the last round; then to the older queue, then by name.

Weights follow past usage where it is known: ``w = max(0, n + k·(n - u))`` with n the queue's part of
the weights still in the game and u its part of the past usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

USAGE_SCALE = 1_000_000
"""Past usage is handed over as parts per million."""


@dataclass(slots=True)
class ShareClaim:
    """One queue in the division of one resource, and what it gets. ``deserved`` ``None``: unlimited.

    ``usage``: its part of the past usage in parts per million.
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
    """The sum of weights in the first round that it took part in."""
    cut: int = 0
    """Numerator of the fraction that rounding cut off in the last round."""

    @property
    def share(self) -> int:
        return self.given + self.surplus + self.rounding


def divide(total: int, unit: int, claims: Sequence[ShareClaim], k_value: Fraction | int = 0) -> None:
    """Fill in what each claim gets of ``total``; ``unit`` is one whole of the resource."""
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
    """Surplus and rounding of the only claim, that wants so much more."""
    surplus = min(wanted, remaining)
    if surplus == wanted:
        return surplus, 0
    surplus = remaining // unit * unit
    return surplus, remaining - surplus


def _rounds(
    remaining: int, unit: int, claims: list[ShareClaim], k_value: Fraction | int
) -> tuple[int, list[ShareClaim]]:
    """The rounds of one priority. Returns what remains, and the claims still below R."""
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
    """The weights of this round, to one scale, as integers."""
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
