"""The page of claims: made from its figures, and the figures are those that a fresh run finds."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from example_counts import seeds
from small_traces import TRACES

from windlass_lab.commands.experiment_runs import laboratory, missing, one
from windlass_lab.experiments.registry import EXPERIMENTS

ROOT = Path(__file__).parents[3]
FIGURES = ROOT / "docs/operations/benchmarks/claims.json"
SPREAD = {"E4": 0.5, "E5": 0.02}
"""By how much figures may be off where more than rounding moves them: one seed stands for the mean of several (E4),
and another order of equal decisions moves a few preemptions (E5)."""


def known() -> dict[str, dict[str, Any]]:
    return {claim["id"]: claim for claim in json.loads(FIGURES.read_text())["claims"]}


def test_the_page_says_what_the_figures_say() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "claims.py"))
    assert (ROOT / "docs/operations/benchmarks/claims.md").read_text() == tool["text"](list(known().values()))
    assert list(known()) == list(EXPERIMENTS)


def test_the_page_names_no_folder_of_this_machine() -> None:
    assert "/work" not in FIGURES.read_text()
    assert "../shared" not in FIGURES.read_text()


@pytest.mark.timeout(900)
@pytest.mark.seeds
@pytest.mark.parametrize("name", seeds(["E13", "E4", "E8", "E5"], 2))
def test_a_fresh_run_finds_the_same(name: str) -> None:
    tried = EXPERIMENTS[name]
    if absent := missing(str(TRACES), tried):
        pytest.skip(f"the published trace {absent[0]} is not here")
    stated = known()[name]
    if stated["verdict"] == "not run":
        pytest.skip(f"{name} is not on the page yet: make claims ONLY={name}")
    result = one(tried, laboratory(str(TRACES), brief=True), str(TRACES))
    assert result.answer is not None
    found = {figure["name"]: figure for figure in result.document["figures"]}
    assert list(found) == [figure["name"] for figure in stated["figures"]]
    for figure in stated["figures"]:
        for side in ("baseline", "windlass"):
            if figure["steady"] and figure[side] is not None:
                near = pytest.approx(figure[side], rel=0.01, abs=SPREAD.get(name, 10.0 ** -figure["digits"]))
                assert found[figure["name"]][side] == near, (
                    f"{figure['name']}, {side}: make claims ONLY={name}"
                )
    assert result.verdict == stated["verdict"]
