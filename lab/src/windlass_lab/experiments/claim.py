"""The nouns of claims: what is claimed, how it is tried, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass_lab.experiments.requirement_numbers import numbers_of

if TYPE_CHECKING:
    from windlass_lab.experiments.lab import Lab

HOLDS, PARTLY, FAILS, MEASURED = "holds", "holds in part", "does not hold", "measured"


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity on both sides; ``None``: that side has none. ``steady``: equal inputs give it again on any
    machine, up to rounding; what a clock measures is not."""

    name: str
    baseline: float | None
    ours: float | None
    unit: str = ""
    digits: int = 0
    steady: bool = True


@dataclass(frozen=True, slots=True)
class Goal:
    """Goal of an experiment, and whether it was met."""

    words: str
    met: bool


@dataclass(frozen=True, slots=True)
class ExperimentFinding:
    """Result of an experiment. ``note``: further facts that a reader of the run needs."""

    figures: Sequence[Figure]
    goals: Sequence[Goal] = ()
    note: str = ""

    @property
    def verdict(self) -> str:
        """Verdict over the goals. Without goals the figures are only measured."""
        if not self.goals:
            return MEASURED
        met = sum(goal.met for goal in self.goals)
        return HOLDS if met == len(self.goals) else PARTLY if met else FAILS


@dataclass(frozen=True, slots=True)
class Experiment:
    """``claim``: as it is made, in words. ``files``: the traces it needs, by their names in the folder of traces.
    ``caveat``: what the experiment does not show. ``try_``: the experiment itself."""

    id: str
    claim: str
    trace: str
    cluster: str
    baseline: str
    ours: str
    metric: str
    files: tuple[str, ...]
    caveat: str
    try_: Callable[[Lab], ExperimentFinding]


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """One experiment and its answer; without one, ``missing`` names the traces that are not there."""

    experiment: Experiment
    answer: ExperimentFinding | None
    missing: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        return "not run" if self.answer is None else self.answer.verdict

    @property
    def document(self) -> dict[str, Any]:
        """As ``windlass sim claims -o json`` prints it."""
        tried, answer = self.experiment, self.answer
        found: dict[str, Any] = {
            "id": tried.id,
            "numbers": numbers_of(tried.id),
            "claim": tried.claim,
            "trace": tried.trace,
            "cluster": tried.cluster,
            "baseline": tried.baseline,
            "windlass": tried.ours,
            "metric": tried.metric,
            "verdict": self.verdict,
            "caveat": tried.caveat,
            "traces": list(tried.files),
            "seconds": round(self.seconds, 1),
        }
        if answer is None:
            return found | {"missing": list(self.missing)}
        return found | {
            "figures": [
                {
                    "name": figure.name,
                    "baseline": rounded(figure.baseline, figure.digits),
                    "windlass": rounded(figure.ours, figure.digits),
                    "unit": figure.unit,
                    "digits": figure.digits,
                    "steady": figure.steady,
                }
                for figure in answer.figures
            ],
            "goals": [{"goal": goal.words, "met": goal.met} for goal in answer.goals],
            "note": answer.note,
        }


def rounded(value: float | None, digits: int) -> float | None:
    """As it is shown; ``None`` for none."""
    return None if value is None else round(value, digits) + 0.0


def less(baseline: float, ours: float) -> float:
    """By how many percent ours is below the baseline; 0 where that is nothing."""
    return 100.0 * (1.0 - ours / baseline) if baseline else 0.0
