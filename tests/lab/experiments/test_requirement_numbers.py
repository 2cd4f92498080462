"""Claims by their numbers: each is tried by experiments that there are, or it is said why by none."""

from __future__ import annotations

import json

import acceptance_manifests

from windlass_lab.experiments import report
from windlass_lab.experiments.claim import ExperimentResult
from windlass_lab.experiments.registry import EXPERIMENTS
from windlass_lab.experiments.requirement_numbers import TRIED, UNTRIED, numbers_of


def test_every_claim_is_tried_or_it_is_said_why_not() -> None:
    listed = json.loads((acceptance_manifests.folder() / "requirements.json").read_text())
    claims = {entry["id"] for entry in listed if entry["kind"] == "number"}
    assert TRIED.keys() | UNTRIED.keys() == claims
    assert not TRIED.keys() & UNTRIED.keys()


def test_experiments_say_which_claims_they_try() -> None:
    assert {experiment for tried in TRIED.values() for experiment in tried} <= EXPERIMENTS.keys()
    assert numbers_of("E1") == ["N1", "N10", "N15"]
    assert numbers_of("E13") == []
    documents = [ExperimentResult(tried, None).document for tried in EXPERIMENTS.values()]
    text = report.markdown(documents)
    assert "| [E2](#e2) | waiting falls by 25 to 35 % (N14) |" in text
    assert f"* N6: {UNTRIED['N6']}." in text
