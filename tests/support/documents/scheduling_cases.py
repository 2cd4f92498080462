"""The scheduling cases: how they are run, and which are known to differ."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from windlass.cli.simulate import plan as simulate_plan
from windlass.kits.timestamps import parse_rfc3339
from windlass.model import scheduler_config
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, Counted, load

FOLDER = Path(__file__).resolve().parents[2] / "cases"
_ENTRY = re.compile(r"^- `([A-Za-z0-9.-]+)`: (\S.*)$")


def _load_runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_cases", FOLDER / "run_cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_cases"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


RUNNER = _load_runner()
CASES: Mapping[str, dict[str, Any]] = {case["id"]: case for case in RUNNER.load_cases(FOLDER / "cases.json")}


def outcome(case: dict[str, Any], **settings: Any) -> tuple[dict[str, Any], list[str]]:
    """The plan for a case, and how it differs from what is expected. Same way as the command, without files.

    ``settings`` are added to the case's scheduler configuration.
    """
    parsed = scheduler_config.parse(yaml.safe_dump({**RUNNER.configuration(case), **settings}))
    model = ClusterModel(EVERY_SCHEDULER, tiers=bool(parsed.config.tiers))
    counted = Counted()
    objects = ((f"object {at}", obj) for at, obj in enumerate(RUNNER.manifests(case)))
    load(model, objects, strict=True, counted=counted)
    run = case["run"]
    request = simulate_plan.PlanRequest(
        files=(),
        now=parse_rfc3339(RUNNER.stamp(RUNNER.NOW)),
        cycles=run.get("cycles", 1),
        until_stable=bool(run.get("untilStable")),
    )
    plan = simulate_plan.run(model, parsed, request, lambda _text: None, counted)
    return plan, RUNNER.compare(case, RUNNER.build_world(case), plan)


def deviations() -> dict[str, str]:
    """The cases that are known to differ, with the reason, from DEVIATIONS.md. A line that looks like an
    entry and is none fails."""
    found: dict[str, str] = {}
    for number, line in enumerate((FOLDER / "DEVIATIONS.md").read_text().splitlines(), 1):
        if line.startswith("- `"):
            match = _ENTRY.match(line)
            assert match is not None, f"DEVIATIONS.md:{number}: write - `ID`: reason"
            assert match[1] not in found, f"DEVIATIONS.md:{number}: {match[1]} is listed twice"
            found[match[1]] = match[2]
    return found
