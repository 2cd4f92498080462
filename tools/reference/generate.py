"""Write the reference pages from the code: commands, error codes, reasons, kinds, annotations.

``python tools/reference/generate.py`` writes ``docs/reference/*.md``; ``--check`` writes nothing and ends with 1
when a page on disk is not what the code says (a test does the same).
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from windlass.api import annotations
from windlass.api.devices.accelerator_table import table
from windlass.api.error_codes import CODES, EXIT_MEANINGS
from windlass.api.reasons import FACTS, Reason
from windlass.api.resources import ALIASES, ALL, Resource
from windlass.app.options import parser
from windlass.app.settings import FIELDS, shown
from windlass.app.settings_follower import SettingsFile
from windlass.cli.main import COMMANDS, command_of, windlass
from windlass.controllers.metrics import ControllerMetrics
from windlass.kits.clock import SystemClock
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler import features
from windlass.scheduler.compat_metrics.registry import OLDEST_WAIT, OLDEST_WAIT_MEANING
from windlass.scheduler.configuration import ConfigFile

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Written by tools/reference/generate.py from the code. Change the code, then `make docs`. -->\n"


def commands() -> str:
    """Every command with its arguments and flags."""
    lines = [
        "# Commands\n",
        NOTE,
        "`windlass` works on the control plane of this box, started by itself when a job is run, or with "
        "`--kubeconfig`/`--context` on any Kubernetes API server that has Windlass.\n",
        "Exit status: "
        + "; ".join(f"{number} {meaning}" for number, meaning in EXIT_MEANINGS.items())
        + ".\n",
        "Every command takes `--state`, `--kubeconfig`, `--context` and, where it prints something, "
        "`-o json|yaml|wide|name|jsonpath=TEMPLATE`.\n",
    ]
    section = ""
    for name, (group, summary) in COMMANDS.items():
        if group != section:
            section = group
            lines.append(f"## {section}\n")
        command = command_of(name)
        lines += _command(f"windlass {name}", command, summary)
    return "\n".join(lines)


def settings() -> str:
    """Every field of the settings file."""
    lines = [
        "# Settings of the processes\n",
        NOTE,
        "`windlass scheduler --settings FILE` and `windlass controller --settings FILE` read a YAML file with these "
        "fields, by sections (`log.level` is field `level` of section `log`). One file may serve both. A flag wins "
        "over the file, the file over the default.\n",
        "The file is looked at every two seconds. A change of a *live* field takes effect at once; others need a "
        "restart, and the log names them until then. A file that is wrong changes nothing: what was in force stays, "
        "and the log, an event `SettingsRefused` on the process's pod, and `windlass_settings_last_reload_successful` "
        "(0) tell file, line, field, reason and remedy. At the start a wrong file is an error (exit status 65).\n",
        "What queues and pods get, and where measured loads come from (`metrics:`), stands in the "
        "[scheduler configuration](../guides/scheduler-configuration.md), a file of its own that is followed, too.\n",
        "| field | value | default | live | of | |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{field.path}` | {field.kind} | `{shown(field.default)}` | {'yes' if field.live else ''} "
        f"| {', '.join(field.roles)} | {field.meaning} |"
        for field in FIELDS
    ]
    return "\n".join(lines) + "\n"


SHARED = {"--state", "--kubeconfig", "--context", "--output", "--help"}


def _command(path: str, command: click.Command, summary: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"### `{path}`\n"
    yield f"{summary}\n"
    yield f"```text\n{usage}\n```\n"
    more = (command.help or "").split("\n\n")[1:]
    yield from (f"{' '.join(part.split())}\n" for part in more)
    rows = list(_options(command)) or list(_process_options(path.rpartition(" ")[2]))
    if rows:
        yield "| flag | meaning |\n|---|---|"
        yield from rows
        yield ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.commands:
            inner = command.get_command(context, name)  # also those of windlass-lab
            assert inner is not None
            yield from _command(f"{path} {name}", inner, (inner.help or "").strip())


def _options(command: click.Command) -> Iterator[str]:
    for option in command.params:
        if not isinstance(option, click.Option) or option.hidden or set(option.opts) & SHARED:
            continue
        names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
        value = "" if option.is_flag else f" `{option.make_metavar(click.Context(command))}`"
        yield f"| {names}{value} | {_cell(option.help or '')} |"


def _process_options(role: str) -> Iterator[str]:
    """The flags of commands that are handed on to a process of their own (``windlass.app``)."""
    if role not in ("scheduler", "controller"):
        return
    roles = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    for action in roles.choices[role]._actions:
        if "--help" not in action.option_strings:
            metavar = action.metavar or action.dest.upper()
            yield f"| `{action.option_strings[-1]}` `{metavar}` | {_cell(action.help or '')} |"


def errors() -> str:
    """Every error code with its long text."""
    lines = [
        "# Error codes\n",
        NOTE,
        "Errors have three parts: what, `why` with the evidence, and `try` with commands to copy. "
        "`windlass help CODE` prints the same text without network; with `-o json` an error is "
        "`{code, message, evidence, remedies}`.\n",
        "| code | what | exit status |\n|---|---|---|",
    ]
    lines += [
        f"| [`{c.code}`](#{c.code.lower()}) | {_cell(c.title)} | {c.exit_status} |" for c in CODES.values()
    ]
    lines.append("")
    for code in CODES.values():
        lines.append(f"## {code.code}\n\n*{code.title[:1].upper()}{code.title[1:]}.* {code.text}\n")
    return "\n".join(lines)


def reasons() -> str:
    """Return the page of reasons for pending work, in Windlass' terms and in those of
    other schedulers."""
    lines = [
        "# Reason codes\n",
        NOTE,
        "Why a job waits. The code stands in `windlass ps` (in short words), `windlass explain`, the PodGroup's "
        "condition and events. Tier 1 is the most severe: of several reasons the one of the lowest tier is "
        "shown first.\n",
        "| reason | meaning | tier | does waiting help | Volcano | Kueue | Slurm |",
        "|---|---|---|---|---|---|---|",
    ]
    for reason in Reason:
        facts = FACTS[reason]
        lines.append(
            f"| `{reason.value}` | {_cell(facts.meaning)} | {facts.tier} | {facts.waiting_helps} | "
            f"{facts.volcano} | {facts.kueue} | {facts.slurm} |"
        )
    return "\n".join([*lines, ""])


def kinds() -> str:
    """Return the page of served kinds and their names."""
    lines = [
        "# Kinds served\n",
        NOTE,
        "What the embedded server serves. Everything else answers 404, never a half-truth.\n",
        "| kind | apiVersion | plural | short names | scope | subresources | verbs |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [*map(_kind, ALL), ""]
    for alias, target in ALIASES.items():
        lines.append(
            f"`{alias.kind}` of `{alias.api_version}` is another spelling of `{target.api_version}`: it is accepted "
            "with a warning and stored as the latter.\n"
        )
    return "\n".join(lines)


def _kind(resource: Resource) -> str:
    usual = Resource("", "v1", "x", "X").verbs
    verbs = "all" if resource.verbs == usual else ", ".join(resource.verbs)
    return (
        f"| {resource.kind} | `{resource.api_version}` | `{resource.plural}` | "
        f"{', '.join(f'`{name}`' for name in resource.short_names) or '–'} | "
        f"{'namespace' if resource.namespaced else 'cluster'} | "
        f"{', '.join(f'`{name}`' for name in resource.subresources) or '–'} | {verbs} |"
    )


def wire_names() -> str:
    """Return the page of labels and annotations, with their comments in the code."""
    lines = [
        "# Labels and annotations\n",
        NOTE,
        "What Windlass reads or writes on objects.\n",
        "| name | meaning |\n|---|---|",
    ]
    for name, meaning in _documented(annotations):
        value = getattr(annotations, name)
        if isinstance(value, str) and "/" in value:
            lines.append(f"| `{value}` | {_cell(meaning)} |")
    return "\n".join([*lines, ""])


def _documented(module: object) -> Iterator[tuple[str, str]]:
    """Module constants with the text below each; empty where there is none (a test refuses that)."""
    tree = ast.parse(Path(getattr(module, "__file__", "")).read_text())
    for at, node in enumerate(tree.body):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        after = tree.body[at + 1] if at + 1 < len(tree.body) else None
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = str(after.value.value)
        yield node.targets[0].id, text


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split()).replace("``", "`")


def metrics() -> str:
    """Every name on ``/metrics``: Windlass' own, and those of the field."""
    lines = [
        "# Names on /metrics\n",
        NOTE,
        "How they are reached, what they cost and which alerts come with them: [Metrics](../operations/metrics.md). "
        "Those marked *cards*, *legacyCards* or *jobs* are exported only if the setting `metrics.details` names "
        "them, and those of Kueue and YuniKorn only if `metrics.compat` does.\n",
        "## Windlass' own\n",
        "In addition each process exports `process_…` and `python_…`. A counter ends in `_total`.\n",
        "| name | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {kind} | {labels} | {_cell(text)} |" for name, kind, labels, text in _own_metrics()
    ]
    for feature in features.METRIC_NAMES:
        module = features.load(feature)
        lines += [f"\n## {feature.name}\n", "| name | type | labels | what it is here |", "|---|---|---|---|"]
        for family in module.FAMILIES:
            mark = f" *({family.detail})*" if family.detail else ""
            labels = _labels(family.labels)
            lines.append(f"| `{family.name}` | {family.kind} | {labels} | {_cell(family.meaning)}{mark} |")
        lines += ["\nLeft out:\n", *(f"* {_left_out(names)}: {why}" for names, why in module.LEFT_OUT)]
    return "\n".join([*lines, ""])


def _labels(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _left_out(names: str) -> str:
    """Names marked as such, unless some are already."""
    return names if "`" in names else re.sub(r"[^\s,()]+", r"`\g<0>`", names)


def _own_metrics() -> Iterator[tuple[str, str, str, str]]:
    """Name, type, labels, meaning of what the processes count themselves."""
    registry = CollectorRegistry()
    SchedulerMetrics(registry)
    ControllerMetrics(registry)
    clock = SystemClock()
    SettingsFile("", "", {}, "scheduler", clock, registry)
    ConfigFile("", clock, registry)
    for collector in list(registry._collector_to_names):
        labels = _labels(getattr(collector, "_labelnames", ()))
        for metric in collector.describe():  # type: ignore[attr-defined]
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            yield name, metric.type, labels, metric.documentation
    yield OLDEST_WAIT, "gauge", "`queue`", OLDEST_WAIT_MEANING


def accelerators() -> str:
    """Return the page of known accelerator models by product name."""
    lines = [
        "# Accelerators\n",
        NOTE,
        "A model is known by its name in the product label (`NVIDIA-A100-SXM4-80GB`, `Tesla-T4`), as whole "
        "parts between dashes. Values that a node reports take precedence. The memory is that of "
        "the largest common version. The tier is the default of the label `gpu-tier`. The "
        "value orders the models by dense 16-bit arithmetic, with 100 for an H100; it is not a price. The `scarcity` "
        "score keeps the more valuable ones free.\n",
        "| model | names | memory | CUDA compute | tier | value |",
        "|---|---|---|---|---|---|",
    ]
    for entry in table():
        compute = ".".join(map(str, entry.compute)) if any(entry.compute) else "–"
        names = ", ".join(entry.names)
        memory = entry.memory_mib // 1024
        lines.append(f"| {entry.model} | {names} | {memory} GiB | {compute} | {entry.tier} | {entry.value} |")
    return "\n".join([*lines, ""])


PAGES: dict[str, Callable[[], str]] = {
    "accelerators.md": accelerators,
    "commands.md": commands,
    "errors.md": errors,
    "metrics.md": metrics,
    "reasons.md": reasons,
    "kinds.md": kinds,
    "annotations.md": wire_names,
    "settings.md": settings,
}


def stale() -> list[str]:
    """The pages on disk that are not what the code says."""
    return [
        name
        for name, page in PAGES.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text() != page()
    ]


def main() -> int:
    line = argparse.ArgumentParser(description="Write docs/reference from the code.")
    line.add_argument("--check", action="store_true", help="write nothing; end with 1 if a page is stale")
    given = line.parse_args()
    assert windlass.commands == {}, "commands are found by name, not registered"
    if not entry_points(group="windlass.sim_commands"):
        print(
            "error: the package windlass-lab is not installed, so two commands would be missing",
            file=sys.stderr,
        )
        print(
            "try:   .venv/bin/python -m pip install --no-deps --no-build-isolation -e ./lab", file=sys.stderr
        )
        return 2
    if given.check:
        found = stale()
        for name in found:
            print(f"docs/reference/{name} is stale: make docs", file=sys.stderr)
        return 1 if found else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
        print(f"docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
