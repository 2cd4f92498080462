"""Shipped scenarios of ``windlass sim run --scenario``: small clusters with the expected decisions.

Each file is one scenario: its first document states subject, actions and expectation, the
other documents are the objects of the cluster. The engine plans it until nothing more
happens, as ``windlass plan`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from windlass.api.errors import WindlassError
from windlass.cli import errors, tables
from windlass.cli.invocation import Invocation
from windlass.cli.output.formats import emit
from windlass.cli.simulate import plan
from windlass.kits.timestamps import parse_rfc3339
from windlass.model import scheduler_config
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, Counted, load

DIRECTORY = Path(__file__).parents[1] / "data" / "scenarios"
NAMES = ("gang", "queue", "fair-share", "topology", "preemption", "reclaim")
ALL = "all"
_NOW = "2026-01-01T01:00:00Z"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Scenario with its expectation.

    ``bound``: pod → node, of pods that must be bound. ``count``: queue → number of its
    pods that must be bound. ``pending`` and ``evicted``: pods, completely.
    """

    subject: str
    summary: str
    actions: str
    bound: Mapping[str, str] = field(default_factory=dict)
    count: Mapping[str, int] = field(default_factory=dict)
    pending: Sequence[str] = ()
    evicted: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """Expected and actual decisions of a scenario, as text."""

    name: str
    scenario: Scenario
    expected: str
    actual: str

    @property
    def passed(self) -> bool:
        return self.expected == self.actual

    @property
    def document(self) -> dict[str, Any]:
        """Return the entry of ``-o json``."""
        return {
            "name": self.name,
            "subject": self.scenario.subject,
            "summary": self.scenario.summary,
            "passed": self.passed,
            "expected": self.expected,
            "actual": self.actual,
        }


def chosen(given: Sequence[str]) -> list[str]:
    """Return the names of scenarios, each once. Raises :class:`WindlassError` for unknown ones."""
    named = [name.strip() for text in given for name in text.split(",") if name.strip()]
    for name in named:
        if name not in (*NAMES, ALL):
            raise WindlassError(
                "WL-USE-400",
                f'there is no scenario "{name}"',
                evidence=f"scenarios: {', '.join(NAMES)}",
                remedies=("windlass sim run --scenario all",),
            )
    return [name for name in NAMES if name in named or ALL in named]


def read(name: str) -> tuple[Scenario, list[dict[str, Any]]]:
    """Return a shipped scenario and the objects of its cluster."""
    head, *objects = yaml.safe_load_all((DIRECTORY / f"{name}.yaml").read_text(encoding="utf-8"))
    return Scenario(**head), objects


def play(name: str, scenario: Scenario, objects: Sequence[dict[str, Any]]) -> ScenarioResult:
    """Plan a scenario and compare."""
    parsed = scheduler_config.parse(f"actions: {scenario.actions!r}\n")
    model = ClusterModel(EVERY_SCHEDULER)
    counted = Counted()
    load(model, ((f"object {at}", obj) for at, obj in enumerate(objects)), strict=True, counted=counted)
    request = plan.PlanRequest(files=(), now=parse_rfc3339(_NOW), until_stable=True)
    found = plan.run(model, parsed, request, lambda _: None, counted)
    bound = {entry["pod"]: entry["node"] for entry in found["binds"]}
    evicted = sorted(entry["pod"] for entry in found["evictions"])
    if scenario.count:
        queue_of = {
            obj["metadata"]["name"]: obj["spec"]["queue"] for obj in objects if obj["kind"] == "PodGroup"
        }
        groups = {
            obj["metadata"]["name"]: obj["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
            for obj in objects
            if obj["kind"] == "Pod"
        }
        numbers = Counter(queue_of[groups[pod]] for pod in bound)
        expected, actual = _counts(scenario.count), _counts(numbers)
    else:
        expected, actual = _placements(scenario.bound), _placements(bound)
    return ScenarioResult(
        name,
        scenario,
        _text(expected, scenario.pending, scenario.evicted),
        _text(actual, _pending(objects, bound) if scenario.pending else (), evicted),
    )


def _pending(objects: Sequence[Mapping[str, Any]], bound: Mapping[str, str]) -> list[str]:
    pods = [obj for obj in objects if obj["kind"] == "Pod" and not obj["spec"].get("nodeName")]
    return [pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"] not in bound]


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number} pods of {queue}" for queue, number in sorted(numbers.items()))


def _placements(bound: Mapping[str, str]) -> str:
    return ", ".join(f"{pod} on {node}" for pod, node in sorted(bound.items()))


def _text(bound: str, pending: Sequence[str], evicted: Sequence[str]) -> str:
    parts = [bound or "nothing bound"]
    if pending:
        parts.append(f"pending: {', '.join(sorted(pending))}")
    parts.append(f"victims: {', '.join(sorted(evicted)) or 'none'}")
    return "; ".join(parts)


def run(invocation: Invocation, given: Sequence[str]) -> int:
    """Play scenarios, print one line for each, and return the exit status: 1 if one did not pass."""
    results = [play(name, *read(name)) for name in chosen(given)]
    passed = sum(result.passed for result in results)
    if invocation.output in ("json", "yaml"):
        emit(invocation, {"scenarios": [result.document for result in results], "passed": passed})
    else:
        rows = [
            [result.scenario.subject, "passed" if result.passed else "FAILED", result.actual]
            for result in results
        ]
        invocation.out.write(tables.render(["SUBJECT", "RESULT", "PLACEMENT AND VICTIMS"], rows))
        for result in results:
            if not result.passed:
                invocation.err.line(f"{result.scenario.subject}: expected {result.expected}")
        invocation.out.line(f"{passed} of {len(results)} passed")
    return errors.OK if passed == len(results) else 1
