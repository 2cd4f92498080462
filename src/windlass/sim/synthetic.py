"""Traces of the project's own: jobs drawn at random, in the shape of published ones.

Arrivals are a Poisson process, busier by day than by night; sizes follow given shares; run times are log-normal;
users submit several runs of the same name, which take similar times. With the same profile and seed the jobs are
the same everywhere. Nothing here is taken from a trace but the rough shape of its distributions (Jeon et al.,
ATC 2019, for the sizes and the spread of run times).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import cos, exp, log, pi

from windlass.kits.rng import Random, seeded
from windlass.sim.jobs import TraceJob

DAY = 86_400.0
SIZES = {1: 0.90, 2: 0.03, 4: 0.03, 8: 0.03, 16: 0.007, 32: 0.003}


@dataclass(frozen=True, slots=True)
class Profile:
    """``jobs`` over ``days``. ``sizes``: GPUs → share of jobs. Run times: half of them below ``median_seconds``;
    ``spread``: the standard deviation of their logarithm, of which ``alike`` (0 to 1) is between names and the
    rest between runs of one name. ``queues`` and ``users``: how many of each; the first are the busiest."""

    jobs: int = 1000
    days: float = 7.0
    sizes: Mapping[int, float] = field(default_factory=lambda: dict(SIZES))
    median_seconds: float = 1200.0
    spread: float = 2.0
    alike: float = 0.8
    queues: int = 4
    users: int = 40
    names_per_user: int = 5
    longest_seconds: float = 14 * DAY


def generate(profile: Profile, seed: int = 0) -> list[TraceJob]:
    """The jobs in the order of their submission; times in whole seconds. Raises ``ValueError`` for a profile
    that describes nothing."""
    if (
        profile.jobs < 1
        or profile.days <= 0
        or profile.median_seconds <= 0
        or not profile.sizes
        or not 0 <= profile.alike <= 1
    ):
        raise ValueError("a trace needs jobs, days, a run time, sizes, and a likeness between 0 and 1")
    random = seeded(f"trace {seed}")
    names: dict[str, tuple[int, float]] = {}
    sizes, shares = zip(*sorted(profile.sizes.items()), strict=True)
    moments = sorted(_moment(random, profile.days) for _ in range(profile.jobs))
    width = len(str(profile.jobs))
    found: list[TraceJob] = []
    for number, moment in enumerate(moments):
        user = _busy(random, profile.users)
        name = f"user{user}-work{random.randrange(max(profile.names_per_user, 1))}"
        if name not in names:
            names[name] = (random.choices(sizes, shares)[0], random.gauss(0.0, 1.0))
        gpus, own = names[name]
        drawn = profile.spread * (
            profile.alike**0.5 * own + (1 - profile.alike) ** 0.5 * random.gauss(0.0, 1.0)
        )
        seconds = min(exp(log(profile.median_seconds) + drawn), profile.longest_seconds)
        found.append(
            TraceJob(
                id=f"{number:0{width}d}",
                submit_seconds=float(round(moment)),
                duration_seconds=float(max(1, round(seconds))),
                gpus=gpus,
                queue=f"queue{user % max(profile.queues, 1)}",
                user=f"user{user}",
                name=name,
            )
        )
    return found


def _moment(random: Random, days: float) -> float:
    """A moment in the time of the trace: three times as likely at two in the afternoon as at two at night."""
    while True:
        moment = random.random() * days * DAY
        hour = (moment % DAY) / 3600.0
        if random.random() < (2.0 + cos((hour - 14.0) / 12.0 * pi)) / 3.0:
            return moment


def _busy(random: Random, count: int) -> int:
    """One of so many, the k-th with a weight of 1/k."""
    weights = [1.0 / (k + 1) for k in range(max(count, 1))]
    return random.choices(range(len(weights)), weights)[0]
