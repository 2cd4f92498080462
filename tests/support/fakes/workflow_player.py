"""Player of workflows: advances one with a virtual clock and scripted leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from windlass.workflow.advance import ENDED, Advance, LeafReport, advance
from windlass.workflow.node import NodeStatus
from windlass.workflow.run import Start, Surroundings

Json = dict[str, Any]
START = 1_700_000_000.0


@dataclass(frozen=True)
class Outcome:
    """End of a leaf."""

    phase: str = "Succeeded"
    code: int = 0
    result: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 1.0
    message: str = ""
    host: str = "node-1"
    daemoned: bool = False
    """It is ready after ``seconds``, and runs until it is stopped."""


Script = Callable[[Start], Outcome]


def fails(code: int = 1, **options: Any) -> Outcome:
    return Outcome("Failed", code, message=f"main: Error (exit code {code})", **options)


def prints(text: str, **options: Any) -> Outcome:
    return Outcome(result=text, **options)


@dataclass
class Player:
    """``scripts``: template → outcome, list of outcomes (one for each start) or function of the start."""

    manifest: str | Json
    scripts: Mapping[str, Any] = field(default_factory=dict)
    templates: Mapping[str, Json] = field(default_factory=dict)
    surroundings: Surroundings = field(default_factory=Surroundings)

    def __post_init__(self) -> None:
        self.workflow: Json = (
            yaml.safe_load(self.manifest) if isinstance(self.manifest, str) else self.manifest
        )
        metadata = self.workflow.setdefault("metadata", {})
        metadata["name"] = metadata.get("name") or metadata.get("generateName", "wf-") + "x"
        metadata |= {"namespace": "default", "uid": "u1", "creationTimestamp": "2023-11-14T22:13:20Z"}
        self.nodes: dict[str, NodeStatus] = {}
        self.now = START
        self.running: dict[str, tuple[float, Outcome]] = {}
        self.started: list[Start] = []
        self.stopped: list[str] = []
        self.writes: list[Any] = []
        self.used: dict[str, int] = {}
        self.last: Advance | None = None

    def step(self, reports: list[LeafReport] | None = None) -> Advance:
        found = advance(self.workflow, self.nodes, reports or [], self.templates, self.surroundings, self.now)
        self.workflow["status"], self.nodes, self.last = found.status, found.nodes, found
        for start in found.starts:
            self.started.append(start)
            outcome = self.outcome(start)
            self.running[start.node.id] = (self.now + outcome.seconds, outcome)
        for node in found.stops:
            self.stopped.append(node.id)
            self.running.pop(node.id, None)
        self.writes += found.cache_writes
        return found

    def outcome(self, start: Start) -> Outcome:
        name = start.template.get("name") or start.node.template_name
        script = self.scripts.get(name, Outcome())
        if isinstance(script, list):
            at = self.used.get(name, 0)
            self.used[name] = at + 1
            return script[min(at, len(script) - 1)]
        return script(start) if callable(script) else script

    def play(self, steps: int = 500) -> Player:
        """Advance until the workflow has ended or waits for nothing that will come."""
        reports: list[LeafReport] = []
        for _ in range(steps):
            found = self.step(reports)
            reports = []
            if found.status["phase"] in ENDED:
                return self
            times = [end for end, _ in self.running.values()]
            if found.due is not None:
                times.append(found.due)
            if not times:
                return self
            self.now = max(self.now, min(times))
            for key in [key for key, (end, _) in self.running.items() if end <= self.now]:
                reports.append(self._report(key, self.running.pop(key)[1]))
        raise AssertionError(f"the workflow has not ended after {steps} steps: {self.phases()}")

    def _report(self, node_id: str, outcome: Outcome) -> LeafReport:
        if outcome.daemoned:
            return LeafReport(
                node_id, "Running", started=self.now, host=outcome.host, daemoned=True, ip="10.0.0.9"
            )
        outputs: Json = {"exitCode": str(outcome.code)}
        if outcome.result is not None:
            outputs["result"] = outcome.result
        if outcome.parameters:
            outputs["parameters"] = [{"name": k, "value": v} for k, v in outcome.parameters.items()]
        started = self.now - outcome.seconds
        return LeafReport(node_id, outcome.phase, outcome.message, outputs, started, self.now, outcome.host)

    # What tests look at.

    @property
    def phase(self) -> str:
        return self.workflow["status"]["phase"]

    @property
    def message(self) -> str:
        return self.workflow["status"].get("message", "")

    def node(self, name: str) -> NodeStatus:
        """Return a node by its display name or the end of its name."""
        found = [node for node in self.nodes.values() if name in (node.display_name, node.name)]
        assert len(found) == 1, (name, sorted(node.name for node in self.nodes.values()))
        return found[0]

    def phases(self) -> dict[str, str]:
        """Return the phases of the leaves and skipped nodes by their display names."""
        skip = {"StepGroup", "Steps", "DAG"}
        return {node.display_name: node.phase for node in self.nodes.values() if node.type not in skip}

    def has(self, name: str) -> bool:
        return any(name in (node.display_name, node.name) for node in self.nodes.values())

    def command_of(self, name: str) -> list[str]:
        """Return command and arguments with which a node's container was begun."""
        (start,) = [start for start in self.started if name in (start.node.display_name, start.node.name)]
        container = start.template.get("container") or start.template.get("script") or {}
        return [*(container.get("command") or ()), *(container.get("args") or ())]


HEAD = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: wf}
spec:
  entrypoint: main
"""
LEAVES = """
  - {name: pass, container: {image: busybox, command: [true]}}
  - {name: fail, container: {image: busybox, command: [false]}}
  - name: echo
    inputs: {parameters: [{name: text}]}
    container: {image: busybox, command: [echo], args: ["{{inputs.parameters.text}}"]}
"""
FAIL = {"fail": fails()}


def dag(tasks: str, *, options: str = "", scripts: dict[str, Any] | None = None, extra: str = "") -> Player:
    indented = "\n".join("        " + line for line in tasks.strip().splitlines())
    text = f"{HEAD}  templates:\n  - name: main\n    dag:\n      {options}\n      tasks:\n{indented}\n{extra}{LEAVES}"
    return Player(text, {**FAIL, **(scripts or {})}).play()


def steps(
    groups: str, *, options: str = "", scripts: dict[str, Any] | None = None, extra: str = ""
) -> Player:
    indented = "\n".join("    " + line for line in groups.strip().splitlines())
    text = f"{HEAD}  templates:\n  - name: main\n    {options}\n    steps:\n{indented}\n{extra}{LEAVES}"
    return Player(text, {**FAIL, **(scripts or {})}).play()
