"""Workflows on one box: tasks and workflows per time, a workflow of 10,000 nodes, and thousands of finished ones.

``python -m benchmarks.workflows`` prints all parts, ``--only tasks`` one of them.
``--quick`` plays a tenth of the nodes and workflows.

- tasks: a loop of real processes in one workflow, from its creation to its end.
- workflows: workflows of one real process each, created as fast as the server takes them.
- nodes: a loop of 10,000 pods on simulated nodes, at most 500 at a time; the largest
  object of it that the server ever stored; the commands on it; a retry from a node.
- finished: workflows of one suspended node that ends at once. Memory after each third of
  them, all of which are deleted by ``ttlStrategy``. Then workflows that stay, and lists of them.

CPU time is that of the box's processes, for each task or workflow; ``node`` includes the
processes of the tasks. Figures are printed and never checked: they depend on the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.jobs import WINDLASS, box
from benchmarks.report import add_output, show
from windlass.api.resources import CONFIG_MAPS, WORKFLOWS
from windlass.client.blocking import BlockingClient
from windlass.client.connection import over_socket
from windlass.kits.state import StateFolder

PARTS = ("tasks", "workflows", "nodes", "finished")
QUICK = 10
"""Divisor of all numbers with ``--quick``."""
TASKS, SINGLE, NODES, FINISHED, LISTED = 3_000, 1_000, 10_000, 6_000, 13_450
PATIENCE_SECONDS = 1800.0
POLL_SECONDS = 0.5
TICKS = os.sysconf("SC_CLK_TCK")
Json = dict[str, Any]
ENDED = ("Succeeded", "Failed", "Error")


@dataclass(frozen=True, slots=True)
class Use:
    """CPU seconds with ended children, and MiB of resident memory, of one process."""

    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Bench:
    """A box and a client of it."""

    state: StateFolder
    client: BlockingClient

    def windlass(self, *arguments: str) -> tuple[str, float]:
        """Return the output of a command and its seconds."""
        environment = {**os.environ, "WINDLASS_STATE": str(self.state.path)}
        began = time.perf_counter()
        done = subprocess.run(
            [WINDLASS, *arguments], env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout, time.perf_counter() - began

    def uses(self) -> dict[str, Use]:
        """Return what each process of the box has used so far."""
        found: dict[str, Use] = {}
        for folder in Path("/proc").iterdir():
            try:
                words = (folder / "cmdline").read_bytes().decode().split("\0")
                if str(self.state.path) not in " ".join(words) or "windlass" not in " ".join(words):
                    continue
                name = (folder / "comm").read_text().strip()
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                status = (folder / "status").read_text()
            except OSError:
                continue
            part = name.removeprefix("wl-") if name in ("wl-server", "wl-control") else "node"
            memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
            past = found.get(part, Use(0.0, 0.0))
            found[part] = Use(past.cpu + sum(map(int, fields[11:15])) / TICKS, past.memory + memory)
        return found

    def create(self, name: str, spec: Json) -> None:
        body = {
            "apiVersion": WORKFLOWS.api_version,
            "kind": "Workflow",
            "metadata": {"name": name},
            "spec": spec,
        }
        self.client.create(WORKFLOWS, body, "default")

    def wait(self, name: str) -> Json:
        """Return the workflow once it has ended."""

        def ended() -> bool:
            found = self.client.find(WORKFLOWS, name, "default")
            return (found or {}).get("status", {}).get("phase") in ENDED

        self.poll(ended)
        found = self.client.find(WORKFLOWS, name, "default")
        assert found is not None
        if found["status"]["phase"] != "Succeeded":
            raise SystemExit(f"workflow {name}: {found['status'].get('message')}")
        return found

    def poll(self, wanted: Callable[[], bool]) -> None:
        deadline = time.perf_counter() + PATIENCE_SECONDS
        while not wanted():
            if time.perf_counter() > deadline:
                raise SystemExit("the workflows did not end in time")
            time.sleep(POLL_SECONDS)

    def counted(self, selector: str) -> int:
        """Return the number of workflows that a label selector chooses."""
        return len(self.client.list(WORKFLOWS, "default", labels=selector, type=msgspec.Raw).items)


@contextmanager
def bench() -> Iterator[Bench]:
    with (
        box("--gpus", "none", "--port", "0", "--max-pods", "40") as (state, _),
        BlockingClient(over_socket(state.socket)) as client,
    ):
        yield Bench(state, client)


def loop(count: int, leaf: Json, parallelism: int | None = None) -> Json:
    step = {"name": "a", "template": "leaf", "withSequence": {"count": str(count)}}
    spec: Json = {
        "entrypoint": "main",
        "templates": [{"name": "main", "steps": [[step]]}, {"name": "leaf", **leaf}],
    }
    return spec | ({"parallelism": parallelism} if parallelism else {})


PROCESS: Json = {"container": {"image": "busybox", "command": ["true"]}}
SIMULATED: Json = {
    "metadata": {"annotations": {"windlass.dev/run-seconds": "0.1"}},
    "nodeSelector": {"windlass.dev/simulated": "true"},
    "tolerations": [{"operator": "Exists"}],
    "container": {"image": "busybox", "command": ["true"]},
}
NO_OP: Json = {"suspend": {"duration": "0"}}


def cpu_for_each(before: dict[str, Use], after: dict[str, Use], count: int) -> Json:
    parts = {"API server": "server", "scheduler and controllers": "control", "node agent": "node"}
    return {
        f"CPU for each: {title}": f"{1000 * (after[part].cpu - before[part].cpu) / count:.1f} ms"
        for title, part in parts.items()
    }


def tasks(count: int) -> Json:
    with bench() as one:
        before, began = one.uses(), time.perf_counter()
        one.create("tasks", loop(count, PROCESS))
        one.wait("tasks")
        seconds = time.perf_counter() - began
        figures = cpu_for_each(before, one.uses(), count)
    return {"tasks": count, "tasks/min": f"{60 * count / seconds:,.0f} (goal: 3,000)", **figures}


def workflows(count: int) -> Json:
    with bench() as one:
        before, began = one.uses(), time.perf_counter()
        for number in range(count):
            one.create(f"w{number}", {"entrypoint": "leaf", "templates": [{"name": "leaf", **PROCESS}]})
        one.poll(lambda: one.counted("workflows.argoproj.io/phase=Succeeded") == count)
        seconds = time.perf_counter() - began
        figures = cpu_for_each(before, one.uses(), count)
    return {"workflows": count, "workflows/h": f"{3600 * count / seconds:,.0f} (goal: 10,000)", **figures}


def nodes(count: int) -> Json:
    with bench() as one:
        one.windlass("node", "add-simulated", "--count", "20", "--gpus", "0")
        before, began = one.uses(), time.perf_counter()
        one.create("large", loop(count, SIMULATED, 500))
        found = one.wait("large")
        seconds, after = time.perf_counter() - began, one.uses()
        size = len(msgspec.json.encode(found))
        parts = one.client.list(CONFIG_MAPS, "default").items
        listed = min(one.windlass("workflow", "ls")[1] for _ in range(3))
        shown = min(one.windlass("workflow", "show", "large")[1] for _ in range(3))
        reset, _ = one.windlass("workflow", "retry", "large", "--from", f"a({count - 3}:{count - 3})")
        one.wait("large")
    return {
        "nodes": count,
        "progress": found["status"]["progress"],
        "seconds": f"{seconds:.0f}",
        "object": f"{size / 1000:,.0f} kB, and {len(parts)} ConfigMaps (goal: 1 MB)",
        "memory of the API server": f"+{after['server'].memory - before['server'].memory:.0f} MiB (goal: 200)",
        "memory of scheduler and controllers": f"+{after['control'].memory - before['control'].memory:.0f} MiB",
        "workflow ls": f"{1000 * listed:.0f} ms (goal: 200)",
        "workflow show": f"{1000 * shown:.0f} ms",
        "retry": reset.strip(),
        **cpu_for_each(before, after, count),
    }


def finished(count: int, listed: int) -> Json:
    figures: Json = {"finished workflows": count}
    with bench() as one:
        spec = {"entrypoint": "leaf", "templates": [{"name": "leaf", **NO_OP}]}
        for third in range(4):
            uses = one.uses()
            memory = f"{uses['server'].memory:.0f} and {uses['control'].memory:.0f} MiB"
            figures[f"memory of API server and controllers after {third * count // 3}"] = memory
            if third == 3:
                break
            for number in range(count // 3):
                one.create(f"t{third}-{number}", {**spec, "ttlStrategy": {"secondsAfterCompletion": 1}})
            one.poll(lambda: one.counted("") == 0)
        before = one.uses()
        for number in range(listed):
            one.create(f"l{number}", spec)
        one.poll(lambda: one.counted("workflows.argoproj.io/phase=Succeeded") == listed)
        figures["listed workflows"] = listed
        figures |= cpu_for_each(before, one.uses(), listed)
        output, seconds = one.windlass("workflow", "ls", "-o", "name")
        assert len(output.splitlines()) == listed, output[-500:]
        figures["workflow ls"] = f"{seconds:.1f} s"
        after = one.uses()
        figures["memory of API server and controllers with them"] = (
            f"{after['server'].memory:.0f} and {after['control'].memory:.0f} MiB"
        )
        one.create("last", spec)
        one.wait("last")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="play a tenth")
    add_output(parser)
    options = parser.parse_args()
    by = QUICK if options.quick else 1
    plays: dict[str, Callable[[], Json]] = {
        "tasks": lambda: tasks(TASKS // by),
        "workflows": lambda: workflows(SINGLE // by),
        "nodes": lambda: nodes(NODES // by),
        "finished": lambda: finished(FINISHED // by, LISTED // by),
    }
    for part, play in plays.items():
        if options.only in (None, part):
            show(play(), options.output)
            print(flush=True)


if __name__ == "__main__":
    main()
