"""Built-in recommenders: GPU utilisation with pending jobs, and the backlog of items."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from windlass.scaling.recommendation import Recommendation, Replicas

UTILISATION = "nvidia_gpu_utilization"
"""Mean utilisation of the GPUs of a job, as a ratio from 0 to 1."""
PENDING_JOBS = "pending_aigc_jobs"
"""Number of AIGCJobs that have work and no worker for it."""

NO_PROBLEMS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class UtilisationRule:
    """Multiply by ``factor`` above ``scale_up``, divide by it below ``scale_down``.

    ``scale_up`` and ``scale_down``: ratios from 0 to 1. Both comparisons are strict.
    """

    scale_up: float = 0.8
    scale_down: float = 0.3
    factor: int = 2


def by_utilisation(
    rule: UtilisationRule,
    metrics: Mapping[str, float],
    replicas: Replicas,
    problems: Mapping[str, str] = NO_PROBLEMS,
) -> Recommendation:
    """Recommend by utilisation: more only while jobs are pending.

    ``problems``: why a metric has no value. An unreported metric gives no number, since it
    must not be read as zero.
    """
    missing = [name for name in (UTILISATION, PENDING_JOBS) if not _is_number(metrics.get(name))]
    if missing:
        why = "; ".join(problems[name] for name in missing if name in problems)
        words = f"{' and '.join(missing)}: no value reported{f' ({why})' if why else ''}"
        return _unchanged("gpuUtil", replicas, words)
    utilisation, pending = metrics[UTILISATION], metrics[PENDING_JOBS]
    now = replicas.current
    seen = f"{UTILISATION} {utilisation:g}"
    if utilisation > rule.scale_up and pending > 0:
        wanted = now * rule.factor
        why = (
            f"{seen} > {rule.scale_up:g} and {PENDING_JOBS} {pending:g} > 0: {now} × {rule.factor} = {wanted}"
        )
    elif utilisation > rule.scale_up:
        wanted, why = now, f"{seen} > {rule.scale_up:g} but {PENDING_JOBS} is 0: unchanged"
    elif utilisation < rule.scale_down:
        wanted = now // rule.factor
        why = f"{seen} < {rule.scale_down:g}: {now} ÷ {rule.factor}, rounded down, = {wanted}"
    else:
        wanted = now
        why = f"{seen} is from {rule.scale_down:g} to {rule.scale_up:g}: unchanged"
    return Recommendation("gpuUtil", wanted, why, reads=(UTILISATION, PENDING_JOBS))


def by_backlog(pending_items: int, batch_items: int, replicas: Replicas) -> Recommendation:
    """Recommend one replica for each batch of items that is not done: ⌈pending ÷ batch⌉.

    This is the formula of an average value of HPA and KEDA with a batch as the target.
    """
    batch = max(1, batch_items)
    wanted = math.ceil(pending_items / batch)
    why = f"{pending_items} items not done ÷ {batch} items in a batch, rounded up, = {wanted}"
    return Recommendation("pendingItems", wanted, why, reads=("pendingItems",))


def utilisation_alternatives(
    rule: UtilisationRule, metrics: Mapping[str, float], replicas: Replicas
) -> list[str]:
    """Return which other values would have changed the number, in words: ``8 at …``."""
    utilisation, pending = metrics.get(UTILISATION), metrics.get(PENDING_JOBS)
    more, fewer = (
        replicas.clamp(replicas.current * rule.factor),
        replicas.clamp(replicas.current // rule.factor),
    )
    high = utilisation is not None and utilisation > rule.scale_up
    waits = pending is not None and pending > 0
    found = []
    if more != replicas.current and not (high and waits):
        needs = [] if high else [f"{UTILISATION} above {rule.scale_up:g}"]
        needs += [] if waits else [f"{PENDING_JOBS} of at least 1"]
        found.append(f"{more} with {' and '.join(needs)}")
    if fewer != replicas.current and not (utilisation is not None and utilisation < rule.scale_down):
        found.append(f"{fewer} with {UTILISATION} below {rule.scale_down:g}")
    return found


def backlog_alternatives(batch_items: int, replicas: Replicas) -> list[str]:
    """Return which other backlogs would have changed the number, in words."""
    batch, now, found = max(1, batch_items), replicas.current, []
    if now < replicas.maximum:
        found.append(f"{now + 1} with more than {now * batch} items not done")
    if now > replicas.minimum:
        found.append(f"{now - 1} with at most {(now - 1) * batch} items not done")
    return found


def _unchanged(source: str, replicas: Replicas, error: str) -> Recommendation:
    return Recommendation(source, replicas.current, f"{error}: unchanged", error)


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
