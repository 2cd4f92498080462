"""Scenes drawn by chance for the live run and the simulator, each with features that may be combined."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random
from typing import Any

from service_replay import NEVER, Change, Scene, Terms, trace

from windlass.model import scheduler_config
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.policies import KAI, VOLCANO
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Dialect

FEATURES = (
    "elastic",
    "failures",
    "drains",
    "models",
    "fractions",
    "estimates",
    "sharing",
    "priorities",
    "queues",
)
MODELS = ("A100", "H100")


def scene(seed: int, features: Collection[str], policy: str = "windlass", count: int = 28) -> Scene:
    """``features``: of :data:`FEATURES`. ``policy``: ``windlass`` (any backfill), ``volcano``, ``volcano-evicting`` or
    ``kai``."""
    rng = Random(f"{seed} {policy} {' '.join(sorted(features))}")
    terms = _terms(rng) if "queues" in features or policy == "kai" else None
    nodes = "2xA100:8,2xH100:8" if "models" in features else "4x8"
    speeds = {"A100": 0.5} if "models" in features and rng.random() < 0.5 else {}
    jobs = [_drawn(job, rng, features, list(terms or ())) for job in trace(seed, count)]
    changes = _changes(rng, features)
    return Scene(
        jobs, _config(rng, policy), terms, nodes, _DIALECTS.get(policy, Dialect.WINDLASS), changes, speeds
    )


_DIALECTS = {"kai": Dialect.KAI, "volcano": Dialect.VOLCANO, "volcano-evicting": Dialect.VOLCANO}
_EVICTING = VOLCANO.replace("enqueue, allocate, backfill", "allocate, preempt, reclaim, backfill")
_TEXTS = {"kai": KAI, "volcano": VOLCANO, "volcano-evicting": _EVICTING}


def _config(rng: Random, policy: str) -> SchedulerConfig:
    if policy in _TEXTS:
        return scheduler_config.parse(_TEXTS[policy]).config
    reservations = rng.choice(("easy", "easy", "conservative", "conservative", "none"))
    aging = rng.choice(("1h", "1h", "0s", "200s"))
    if rng.random() < 0.3:
        return SchedulerConfig()
    backfill = {"reservations": reservations, "learned": "false", "aging": aging}
    return SchedulerConfig(configurations={"backfill": backfill})


def _terms(rng: Random) -> Terms:
    found: Terms = {}
    for name in "abcd"[: rng.choice((1, 2, 3, 4))]:
        found[name] = {}
        if rng.random() < 0.7:
            found[name]["deserved"] = rng.choice((4, 8, 12, 16))
        if rng.random() < 0.25:
            found[name]["capability"] = rng.choice((24, 32))
    return found


def _drawn(job: TraceJob, rng: Random, features: Collection[str], queues: list[str]) -> TraceJob:
    changes: dict[str, Any] = {}
    if queues:
        changes["queue"] = rng.choice(queues)
    if "priorities" in features and rng.random() < 0.4:
        changes["priority"] = rng.choice((10, 50, 100, 1000))
    if "estimates" in features:
        changes["requested_seconds"] = job.duration_seconds * rng.choice((0.5, 1, 1, 2, 4))
    if "sharing" in features and rng.random() < 0.7:
        changes["time_share"] = True
        changes["checkpoint_seconds"] = rng.choice((NEVER, 0.0, 60.0, 200.0))
        changes["restart_seconds"] = rng.choice((0.0, 0.0, 5.0, 30.0))
    if "models" in features and job.gpus <= 16 and rng.random() < 0.4:
        changes["gpu_models"] = (rng.choice(MODELS),)
    if "elastic" in features and job.gpus > 1 and rng.random() < 0.6:
        changes["min_gpus"] = rng.randint(1, job.gpus - 1)
        if changes.get("checkpoint_seconds") in (60.0, 200.0):
            changes["checkpoint_seconds"] = 0.0  # how often it saves would depend on how many run
    elif "fractions" in features and rng.random() < 0.5:
        changes["gpus"] = rng.choice((1, 1, 1, 2, 4))
        changes["gpu_milli"] = rng.choice((250, 300, 500, 700))
    if "models" in features and changes.get("checkpoint_seconds") in (60.0, 200.0):
        changes["checkpoint_seconds"] = NEVER
    return replace(job, **changes)


def _changes(rng: Random, features: Collection[str]) -> tuple[Change, ...]:
    """Whole seconds."""
    found: list[Change] = []
    for at in range(4):
        name = f"node-{at:04d}"
        kinds = [pair for kind, pair in _KINDS if kind in features]
        now = 0.0
        while kinds and now < 3000:
            begin, end = rng.choice(kinds)
            now += rng.randrange(200, 2500)
            length = rng.randrange(60, 900)
            found += [Change(now, name, begin), Change(now + length, name, end)]
            now += length
    return tuple(sorted(found, key=lambda change: change.at))


_KINDS = (
    ("failures", ("fail", "return")),
    ("drains", ("cordon", "uncordon")),
    ("drains", ("drain", "uncordon")),
)
