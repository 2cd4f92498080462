"""Decision about the number of workers of an AIGCJob, as a record in its status. Pure.

The record (``status.scaling``) has all inputs with source and age, the recommendations, the
arithmetic and what overrode it. The controller of the job reads ``desired`` from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import aigc
from windlass.api.resources import AIGC_JOBS
from windlass.controllers.aigc_scaling.inputs import (
    FED,
    WorkerOnNode,
    fed_values,
    parse_time,
    whole,
)
from windlass.controllers.effects import EffectPlan, Effects, EmitEvent, Update, reference
from windlass.jobs.aigc.autoscale import CUSTOM, GPU_UTIL, PENDING_ITEMS, Autoscale
from windlass.kits.timestamps import rfc3339, rfc3339_micro
from windlass.scaling.decision import Limits, ScalingDecision, decide
from windlass.scaling.measurement import Measurement, values_of
from windlass.scaling.recommendation import Recommendation, Replicas
from windlass.scaling.rules import (
    UTILISATION,
    UtilisationRule,
    backlog_alternatives,
    by_backlog,
    by_utilisation,
    utilisation_alternatives,
)

Json = Mapping[str, Any]
INTERVAL_SECONDS = 15.0
"""Interval between two decisions about a job."""
SOON_SECONDS = 1.0
"""Interval between two decisions while there is no value to decide by."""
MAX_CHANGES = 10
"""Maximum number of earlier changes in the record."""
LOADING, STARTING = "the class is being loaded", "the driver does not run yet"
SILENT = "the driver did not answer"
TRANSIENT = (LOADING, STARTING)
"""Reasons without a number that pass by themselves."""


@dataclass(frozen=True, slots=True)
class ScalingSnapshot:
    """Observed surroundings of a job.

    ``custom``: answer of the user's class; ``None``: it was not asked. ``quota``: workers for which the
    queue has quota, with ``quota_words``. ``finished``: all rows have an end.
    """

    workers: Sequence[WorkerOnNode]
    measurements: Sequence[Measurement]
    custom: Recommendation | None
    quota: int | None
    quota_words: str
    finished: bool
    now: float


def replicas_of(obj: Json) -> Replicas:
    """Return the present number of workers with its bounds. A changed ``spec.replicas`` starts from there."""
    spec, record = obj.get("spec") or {}, record_of(obj)
    least, most = aigc.worker_bounds(spec)
    current = int(record.get("desired") or 0)
    if not current or record.get("replicas") != spec.get("replicas"):
        current = aigc.worker_count(spec)
    return Replicas(min(most, max(least, current)), least, most)


def record_of(obj: Json) -> Json:
    """Return the last decision; empty before the first one."""
    return aigc.part(obj.get("status") or {}, "scaling")


def due_in(obj: Json, now: float) -> float:
    """Return the seconds until the next decision; 0 if it is due."""
    record = record_of(obj)
    at = parse_time(record.get("time"), 0.0)
    changed = record.get("generation") != obj["metadata"].get("generation")
    refed = aigc.part(record, "fed").get("values", {}) != fed_values(obj)
    if not at or changed or refed:
        return 0.0
    pause = SOON_SECONDS if record.get("waiting") else INTERVAL_SECONDS
    return max(0.0, at + pause - now)


def decided(obj: Json, scale: Autoscale, observed: ScalingSnapshot) -> dict[str, Any]:
    """Return the record of a decision."""
    replicas = replicas_of(obj)
    recommendations = _recommendations(scale, observed, replicas)
    last = parse_time((obj.get("status") or {}).get("lastScaleTime"), 0.0)
    limits = _limits(obj, scale, observed, recommendations, last)
    decision = decide(recommendations, replicas, limits, observed.now - last if last else None)
    return _record(obj, scale, observed, recommendations, decision, replicas)


def reconcile_scaling(obj: Json, scale: Autoscale, observed: ScalingSnapshot) -> Effects:
    """Decide, and write the decision."""
    record = decided(obj, scale, observed)
    changes = record["desired"] != record["current"]
    status = dict(obj.get("status") or {})
    status["scaling"] = record
    if changes:
        status["lastScaleTime"] = rfc3339_micro(observed.now)
    _put_cost(obj, status, observed)
    about = reference(AIGC_JOBS, obj)
    plan = EffectPlan(about=about)
    if _is_news(obj, status):
        event = EmitEvent(about, "Normal", "AIGCJobScaled", record["arithmetic"]) if changes else None
        plan.stage(Update(AIGC_JOBS, {**obj, "status": status}, "status", event))
        if not observed.finished and not _is_first_silence(obj, observed.custom):
            _report_failure(plan, observed.custom, record["desired"])
    plan.requeue(SOON_SECONDS if record.get("waiting") else INTERVAL_SECONDS)
    return plan.done()


def _is_first_silence(obj: Json, custom: Recommendation | None) -> bool:
    """Return whether the driver answered at the decision before this one.

    A driver that has just ended does not answer either. Its pod tells this a moment later.
    """
    if custom is None or SILENT not in custom.error:
        return False
    before = record_of(obj).get("recommendations") or ()
    return not any(SILENT in str(one.get("error") or "") for one in before)


def _report_failure(plan: EffectPlan, custom: Recommendation | None, workers: int) -> None:
    """Emit why the class of a user has no number."""
    if custom is None or not custom.error or custom.error in TRANSIENT or plan.about is None:
        return
    words = f"{custom.arithmetic}: the number of workers stays {workers}"
    plan.event(EmitEvent(plan.about, "Warning", "AIGCScalerFailed", words, lasting=True))


def _recommendations(scale: Autoscale, observed: ScalingSnapshot, replicas: Replicas) -> list[Recommendation]:
    values = values_of(observed.measurements)
    problems = {one.name: one.problem for one in observed.measurements if one.problem}
    found = []
    if scale.metric == PENDING_ITEMS:
        found.append(_by_backlog(scale, values, problems, replicas))
    elif scale.metric == GPU_UTIL:
        found.append(by_utilisation(_rule(scale), values, replicas, problems))
    if observed.custom is not None:
        found.append(_with_problems(observed.custom, problems))
    elif scale.metric == CUSTOM:
        found.append(Recommendation(CUSTOM, replicas.current, "no class is named", "no class is named"))
    return found


def _rule(scale: Autoscale) -> UtilisationRule:
    return UtilisationRule(scale.scale_up, scale.scale_down, scale.factor)


def _by_backlog(
    scale: Autoscale, values: Mapping[str, float], problems: Mapping[str, str], replicas: Replicas
) -> Recommendation:
    if PENDING_ITEMS not in values:
        words = f"{PENDING_ITEMS}: no value reported ({problems.get(PENDING_ITEMS, 'nothing reports it')})"
        return Recommendation(PENDING_ITEMS, replicas.current, words, words)
    return by_backlog(int(values[PENDING_ITEMS]), scale.batch, replicas)


def _with_problems(custom: Recommendation, problems: Mapping[str, str]) -> Recommendation:
    """Return the answer of a class with the reason why a metric that it wanted has no value."""
    for name, problem in problems.items():
        if custom.error.startswith(f"metric {name!r} "):
            more = f"{name}: {problem}"
            return Recommendation(
                custom.source,
                custom.replicas,
                f"{custom.source}: no value of {more}",
                f"no value of {more}",
                custom.reads,
            )
    return custom


def _limits(
    obj: Json,
    scale: Autoscale,
    observed: ScalingSnapshot,
    recommendations: Sequence[Recommendation],
    last: float,
) -> Limits:
    hold, hold_growth = "", ""
    if observed.finished:
        hold = "nothing changes, since all rows have an end"
    read = {name for one in recommendations for name in one.reads}
    by_name = {one.name: one for one in observed.measurements}
    load = by_name.get(UTILISATION)
    if UTILISATION in read and load is not None and load.value is not None:
        if last and load.at <= last:
            hold = f"nothing changes until {UTILISATION} is measured after the last change"
        elif load.source != FED:
            running = whole(one for one in observed.workers if one.running)
            desired = replicas_of(obj).current
            if running < desired:
                hold_growth = f"not more while {desired - running} of {desired} workers do not run"
    return Limits(
        quota=observed.quota,
        quota_words=observed.quota_words,
        cooldown_seconds=scale.cooldown_seconds,
        hold=hold,
        hold_growth=hold_growth,
    )


def _record(
    obj: Json,
    scale: Autoscale,
    observed: ScalingSnapshot,
    recommendations: Sequence[Recommendation],
    decision: ScalingDecision,
    replicas: Replicas,
) -> dict[str, Any]:
    old = record_of(obj)
    record: dict[str, Any] = {
        "time": rfc3339(observed.now),
        "generation": obj["metadata"].get("generation"),
        "metric": scale.metric,
        "current": decision.before,
        "desired": decision.after,
        "wanted": decision.wanted,
        "minimum": replicas.minimum,
        "maximum": replicas.maximum,
        "arithmetic": decision.arithmetic,
        "inputs": [_input(one, observed.now) for one in observed.measurements],
        "recommendations": [_recommendation(one) for one in recommendations],
    }
    spec = obj.get("spec") or {}
    optional = {
        "replicas": spec.get("replicas"),
        "plugin": scale.plugin.shown if scale.plugin is not None else None,
        "overrides": list(decision.overrides),
        "quota": observed.quota,
        "alternatives": _alternatives(scale, observed, replicas, decision),
        "waiting": all(one.error for one in recommendations),
        "fed": _fed(obj, observed),
    }
    record |= {name: value for name, value in optional.items() if value not in (None, [], {}, False)}
    changes = list(old.get("changes") or ())
    if decision.changes:
        kept = ("time", "current", "desired", "wanted", "arithmetic", "inputs", "overrides")
        changes = [*changes, {name: record[name] for name in kept if name in record}][-MAX_CHANGES:]
    if changes:
        record["changes"] = changes
    return record


def _input(one: Measurement, now: float) -> dict[str, Any]:
    found: dict[str, Any] = {"name": one.name, "source": one.source}
    if one.value is None:
        return found | {"problem": one.problem}
    return found | {"value": one.value, "ageSeconds": round(max(0.0, now - one.at), 1)}


def _recommendation(one: Recommendation) -> dict[str, Any]:
    found: dict[str, Any] = {"source": one.source, "workers": one.replicas, "arithmetic": one.arithmetic}
    return found | ({"error": one.error} if one.error else {})


def _fed(obj: Json, observed: ScalingSnapshot) -> dict[str, Any]:
    given = fed_values(obj)
    times = [one.at for one in observed.measurements if one.source == FED]
    return {"values": given, "at": rfc3339_micro(times[0] if times else observed.now)} if given else {}


def _alternatives(
    scale: Autoscale, observed: ScalingSnapshot, replicas: Replicas, decision: ScalingDecision
) -> list[str]:
    """Return what would have led to another number, in words."""
    values, found = values_of(observed.measurements), []
    if decision.overrides and replicas.clamp(decision.wanted) != decision.after:
        found.append(f"{replicas.clamp(decision.wanted)} but for this: {'; '.join(decision.overrides)}")
    if scale.metric == GPU_UTIL:
        found += utilisation_alternatives(_rule(scale), values, replicas)
    elif scale.metric == PENDING_ITEMS:
        found += backlog_alternatives(
            scale.batch, Replicas(decision.after, replicas.minimum, replicas.maximum)
        )
    return found


def _put_cost(obj: Json, status: dict[str, Any], observed: ScalingSnapshot) -> None:
    """Write the part of the workers that are on spot nodes."""
    placed = [one for one in observed.workers if one.node]
    if not aigc.part(aigc.part(obj.get("spec") or {}, "autoscale"), "spot") or not placed:
        return
    part = sum(one.spot for one in placed) / len(placed)
    status["cost"] = {**aigc.part(status, "cost"), "spotFraction": round(part, 3)}


def _is_news(obj: Json, status: Json) -> bool:
    """Return whether the status says something new: while nothing has a value, not the time alone."""
    new, old = aigc.part(status, "scaling"), record_of(obj)
    late = parse_time(new.get("time"), 0.0) - parse_time(old.get("time"), 0.0) >= INTERVAL_SECONDS

    def told(found: Json) -> Any:
        record = dict(aigc.part(found, "scaling"))
        if record.get("waiting") and not late:
            record.pop("time", None)
            record.pop("inputs", None)
        return {**found, "scaling": record}

    return told(status) != told(obj.get("status") or {})
