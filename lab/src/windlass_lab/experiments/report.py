"""Results of claims as a page of documentation, and as a short table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass_lab.experiments.requirement_numbers import UNTRIED, numbers_of

Document = Mapping[str, Any]
"""As ``Result.document`` gives it, or a part of that."""

CREDITS: Mapping[str, str] = {
    "philly": "Philly: Microsoft, M. Jeon et al., *Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training"
    " Workloads*, USENIX ATC 2019 (msr-fiddle/philly-traces, CC-BY-4.0), in the selection of Pollux and Sia, October"
    " 2017.",
    "muri": "Muri: Y. Zhao et al., *Multi-Resource Interleaving for Deep Learning Training*, SIGCOMM 2022"
    " (pkusys/Muri, Apache-2.0), traces and published results.",
    "openb": "OpenB: Q. Weng et al., *Beware of Fragmentation*, USENIX ATC 2023"
    " (hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0; Alibaba's cluster-trace-gpu-v2023).",
    "genai": "GenTD26: Alibaba's cluster-trace-v2026-GenAI (alibaba/clusterdata), used for measurement alone.",
    "azure_llm": "Azure LLM inference trace 2023: Microsoft, P. Patel et al., *Splitwise*, ISCA 2024"
    " (Azure/AzurePublicDataset, CC-BY-4.0).",
}
"""Directory of traces → credit to their authors."""


def number(value: float | None, unit: str, digits: int) -> str:
    """A quantity with its unit."""
    if value is None:
        return "–"
    after = unit if unit in ("", "%") else f" {unit}"
    return f"{value:,.{digits}f}{after}"


def sides(figure: Document) -> tuple[str, str]:
    """The baseline's quantity and that of Windlass."""
    unit, digits = figure["unit"], figure["digits"]
    return number(figure["baseline"], unit, digits), number(figure["windlass"], unit, digits)


def markdown(results: Sequence[Document]) -> str:
    """Return the page: all results in a table, then one by one, then the credits of the traces."""
    lines = ["| | claim | baseline → Windlass | verdict |", "|---|---|---|---|"]
    lines += [
        f"| [{found['id']}](#{found['id'].lower()}) | {_claim(found)} | {_brief(found)} | {_verdict(found)} |"
        for found in results
    ]
    for found in results:
        lines += ["", *_section(found)]
    lines += ["", "## What no experiment tries", "", *_NOT_CLAIMED, ""]
    lines += [f"* {key}: {why}." for key, why in UNTRIED.items()]
    lines += ["", "## Traces", "", *(f"* {credit}" for credit in _credits(results))]
    return "\n".join(lines) + "\n"


_NOT_CLAIMED = (
    "Windlass claims none of these. They are figures of articles about models, machines and",
    "networks, which `windlass docs hardware`, `versions` and `network` quote.",
)


def _claim(found: Document) -> str:
    """With the numbers that it has in the list of requirements."""
    numbers = numbers_of(found["id"])
    return f"{found['claim']} ({', '.join(numbers)})" if numbers else found["claim"]


def _brief(found: Document) -> str:
    if not found.get("figures"):
        return "–"
    before, after = sides(found["figures"][0])
    return f"{found['figures'][0]['name']}: {before} → {after}"


def _verdict(found: Document) -> str:
    """Return the verdict with the missed goals, so that the table alone does not mislead."""
    goals = found.get("goals", ())
    missed = [goal["goal"] for goal in goals if not goal["met"]]
    if not missed:
        return found["verdict"]
    met = f"{len(goals) - len(missed)} of {len(goals)} goals"
    return f"{found['verdict']} ({met}); not met: {'; '.join(missed)}"


def _section(found: Document) -> Iterable[str]:
    yield f"## {found['id']}"
    yield ""
    yield f"> {found['claim']}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for name in ("trace", "cluster", "baseline", "windlass", "metric"):
        yield f"| {name} | {found[name]} |"
    yield ""
    yield from _figures(found) if "figures" in found else [_why_not(found)]
    yield ""
    yield found["caveat"]


def _why_not(found: Document) -> str:
    return f"Not run: {', '.join(found['missing'])} not found." if found["missing"] else "Not run yet."


def _figures(found: Document) -> Iterable[str]:
    yield "| | baseline | Windlass |"
    yield "|---|---:|---:|"
    for figure in found["figures"]:
        before, after = sides(figure)
        yield f"| {figure['name']} | {before} | {after} |"
    yield ""
    for goal in found["goals"]:
        yield f"* {'met' if goal['met'] else '**not met**'}: {goal['goal']}"
    yield f"* verdict: {found['verdict']}"
    if found["note"]:
        yield ""
        yield found["note"]


def _credits(results: Sequence[Document]) -> list[str]:
    folders = dict.fromkeys(name.split("/")[0] for found in results for name in found["traces"])
    return [credit for folder, credit in CREDITS.items() if folder in folders]
