"""Every command that the documentation shows runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import kubectl
import pytest
from console_blocks import PageError, Shell, Step, check, matches, normal, steps
from single_node import ROOT, WINDLASS, left_of

FOLDERS = ("start", "guides", "concepts", "operations", "operations/benchmarks")
PROSE = {
    "docs/concepts/architecture.md",
    "docs/concepts/backfill.md",
    "docs/concepts/batch-items.md",
    "docs/concepts/devices.md",
    "docs/concepts/eviction-protection.md",
    "docs/concepts/evictions.md",
    "docs/concepts/fair-share.md",
    "docs/concepts/gangs.md",
    "docs/concepts/glossary.md",
    "docs/concepts/gpu-scores.md",
    "docs/concepts/placement.md",
    "docs/concepts/queues.md",
    "docs/concepts/quota-by-model.md",
    "docs/concepts/reasons.md",
    "docs/concepts/reservations.md",
    "docs/concepts/run-times.md",
    "docs/concepts/scheduler-restart.md",
    "docs/concepts/single-node.md",
    "docs/concepts/single-node-lifecycle.md",
    "docs/concepts/single-node-network.md",
    "docs/concepts/time-sharing.md",
    "docs/concepts/topology.md",
    "docs/concepts/volcano-differences.md",
    "docs/guides/adopt.md",  # ``test_adopt.py`` plays it
    "docs/guides/batch-rows.md",  # ``tests/items/test_guide.py`` checks it
    "docs/guides/autoscaling.md",  # ``test_autoscaler.py`` plays it
    "docs/guides/extender.md",
    "docs/guides/load-rescheduling.md",
    "docs/guides/scheduler-configuration.md",
    "docs/guides/volcano.md",
    "docs/guides/openai-batches.md",  # ``test_openai_batches.py`` plays it
    "docs/guides/ray.md",  # ``test_ray.py`` plays it
    "docs/guides/workflows.md",  # ``test_workflows.py`` plays it
    "docs/guides/write-a-policy.md",
    "docs/operations/threat-model.md",
    "docs/operations/benchmarks.md",
    "docs/operations/benchmarks/api-server.md",
    "docs/operations/benchmarks/engine.md",
    "docs/operations/benchmarks/generation.md",  # `make bench-generation` prints it
    "docs/operations/benchmarks/workflows.md",  # `make bench-workflows` prints it
    "docs/operations/benchmarks/jobs.md",  # `make bench-jobs` prints it
    "docs/operations/benchmarks/packing.md",  # `make sim-tables` plays it
    "docs/operations/benchmarks/peers.md",
    "docs/operations/benchmarks/run-times.md",
    "docs/operations/benchmarks/slurm.md",
    "docs/operations/benchmarks/subtitles.md",  # ``test_workflows.py`` runs the example
    "docs/operations/benchmarks/time-sharing.md",
    "docs/operations/performance.md",
    "docs/operations/gpus.md",
    "docs/operations/workflow-examples.md",  # ``test_published_examples.py`` compares it
    "docs/operations/field-manifests.md",  # written by ``test_field_manifests.py``
    "docs/operations/fuzzing.md",
    "docs/operations/gpu-nodes.md",
    "docs/operations/metrics.md",
    "docs/operations/tracing.md",
    "docs/operations/versions.md",
    "docs/operations/upgrades.md",  # ``test_upgrade.py`` plays it
    "docs/operations/chaos.md",  # written by `make chaos`
    "docs/operations/mutants.md",  # written by `make mutate`
}
"""Pages without a console block. A page is either here or runs."""

CLUSTER = {"docs/guides/kubernetes.md"}
"""Pages that need a cluster: ``test_install.py`` runs them."""

WORK = {"train.py": 'print("training")\n'}
"""What the reader of a page has in the current folder."""

ROOMY_SECONDS = 900
LOOK_SECONDS = 180
LOOKS = ("windlass doctor", "windlass explain ", "windlass get ", "windlass gpu", "windlass items ls ",
         "windlass logs ", "windlass model ls", "windlass node ls", "windlass node tree", "windlass ps",
         "windlass queue ls", "windlass queue tree", "windlass show ", "windlass status", "windlass workflow graph ",
         "windlass workflow ls", "kubectl describe ", "kubectl get ", "kubectl logs ")  # fmt: skip
"""Commands that change nothing."""


def pages() -> list[Path]:
    found = [ROOT / "README.md"]
    for folder in FOLDERS:
        found += sorted((ROOT / "docs" / folder).glob("*.md"))
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


RUN = [page for page in pages() if name_of(page) not in PROSE | CLUSTER]


class Reader:
    """Somebody with an empty home who follows a page."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="windlass-docs-"))
        hidden = ("WINDLASS", "KUBE", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        path = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"
        self.environment = {**kept, "PATH": path, "HOME": str(self.home), "NO_COLOR": "1"}
        self.shell = Shell(self.home, self.environment)
        for name, text in WORK.items():
            (self.shell.where / name).write_text(text)
        (self.shell.where / "examples").symlink_to(ROOT / "examples")

    def translate(self, line: str) -> str:
        """The page's names for this machine and this home."""
        line = line.replace(str(self.home / "work"), "/home/you").replace(str(self.home), "/home/you")
        node = re.escape(socket.gethostname())
        return re.sub(rf"(?<![\w.-]){node}(?![\w.-])", "box", line, flags=re.IGNORECASE)

    def follow(self, step: Step) -> str | None:
        """What is wrong, in words. Who looks looks again while something else is shown than on the page: on a slow
        machine it takes longer until it is so."""
        deadline = time.monotonic() + LOOK_SECONDS
        looks = step.command.rpartition("; done; ")[2].startswith(LOOKS)
        while True:
            fault = check(step, self.shell.run(step.command), self.translate)
            if fault is None or not looks or time.monotonic() > deadline:
                return fault
            time.sleep(0.5)

    def leave(self) -> dict[int, str]:
        """End everything; return the processes that would not."""
        subprocess.run(
            [WINDLASS, "down", "--purge", "--yes"],
            env=self.environment,
            capture_output=True,
            timeout=120,
            check=False,
        )
        left = left_of(self.home)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        shutil.rmtree(self.home, ignore_errors=True)
        return left


@pytest.fixture
def reader() -> Iterator[Reader]:
    one = Reader()
    yield one
    assert one.leave() == {}, "processes left after windlass down --purge"


@pytest.mark.kubectl
@pytest.mark.timeout(ROOMY_SECONDS)
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_a_page_tells_the_truth(page: Path, reader: Reader):
    found = steps(page.read_text(), name_of(page))
    assert found, "no console block: run something, or list the page under PROSE"
    if kubectl.find() is None and any("kubectl " in step.command for step in found):
        pytest.skip("no kubectl: the page uses it")
    for step in found:
        if not step.skipped:
            fault = reader.follow(step)
            assert fault is None, f"{name_of(page)} {fault}"


def test_pages_without_blocks_are_listed():
    silent = {name_of(page) for page in pages() if not steps(page.read_text(), name_of(page))}
    assert silent <= PROSE
    assert not {name_of(page) for page in pages()} & PROSE - silent, (
        "listed as prose, but has a console block"
    )


# Links.

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
WRITTEN_LATER = {"docs/operations/chaos.md"}
"""Written by a make target."""


def targets(text: str) -> list[str]:
    """Where the links of a page lead; code is no link."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return [link for link in _LINK.findall(prose) if not link.startswith(("http:", "https:", "mailto:"))]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def linked_pages() -> list[Path]:
    return [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


@pytest.mark.parametrize("page", linked_pages(), ids=name_of)
def test_links_lead_somewhere(page: Path):
    dead = []
    for link in targets(page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            if str(target.relative_to(ROOT)) not in WRITTEN_LATER:
                dead.append(link)
        elif anchor and anchor not in anchors(target.read_text()):
            dead.append(link)
    assert dead == []


# The notation itself.

PAGE = """# A page
```sh
$ not run
```
```console
$ one
out ... put
...
$ two \\
> more
[exit 3]
$ three
```
text
```console
$ make demo     # shown, not run
```
"""


def test_steps_of_a_page():
    one, two, three, make = steps(PAGE)
    assert one == Step(6, "one", ("out ... put", "..."))
    assert two == Step(9, "two \\\nmore", None, 3)
    assert three == Step(12, "three")
    assert make.skipped
    assert not three.skipped


@pytest.mark.parametrize("text", ["```console\nno command\n```\n", "```console\n$ open\n"])
def test_a_block_that_cannot_be_read(text: str):
    with pytest.raises(PageError):
        steps(text)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (["a"], ["a"]),
        ([], []),
        (["..."], []),
        (["...", "b"], ["a", "a", "b"]),
        (["a", "..."], ["a", "b", "c"]),
        (["a", "...", "d", "..."], ["a", "b", "d", "d"]),
        (["...", "d", "...", "d"], ["d", "d"]),
        (["up ... s"], ["up 3 and more s"]),
        (["stop ..."], ["stop"]),
        (["NAME   AGE", "x      3s"], ["NAME  AGE", "x     12m"]),
        (["(pid 1, up 2h)"], ["(pid 4711, up 31s)"]),
        (["https://127.0.0.1:7443"], ["https://127.0.0.1:40001"]),
        (["at 2026-01-01T00:00:00Z (1s ago)"], ["at 2027-03-04T05:06:07Z (9m ago)"]),
    ],
)
def test_output_as_the_page_shows(expected: list[str], actual: list[str]):
    assert matches(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ([], ["a"]),
        (["a"], []),
        (["a"], ["b"]),
        (["a"], ["a", "b"]),
        (["...", "b"], ["b", "a"]),
        (["a", "...", "b"], ["a"]),
        (["a.c"], ["abc"]),
        (["GPUS 3"], ["GPUS 4"]),
        (["rank-0 1s"], ["rank-1 1s"]),
        (["up ... s"], ["down s"]),
    ],
)
def test_output_that_the_page_does_not_show(expected: list[str], actual: list[str]):
    assert not matches(expected, actual)


def test_stand_ins_leave_names_alone():
    assert normal("job-3s  v1.5s exit 7") == "job-3s v1.5s exit 7"


def test_a_shell_remembers(tmp_path: Path):
    shell = Shell(tmp_path, {"PATH": os.environ["PATH"]})
    assert shell.run("export GREETING='two\nlines'; mkdir deeper; cd deeper").status == 0
    outcome = shell.run('echo "$GREETING"; pwd >&2; exit 7')
    assert outcome.status == 7
    assert outcome.lines == ("two", "lines", str(tmp_path / "work" / "deeper"))
    assert shell.run("false").status == 1


def test_faults_are_told(tmp_path: Path):
    shell = Shell(tmp_path, {"PATH": os.environ["PATH"]})
    assert check(Step(1, "echo a", ("a",)), shell.run("echo a"), str) is None
    assert "ended with 2" in (check(Step(1, "exit 2"), shell.run("exit 2"), str) or "")
    assert "the page shows" in (check(Step(1, "echo a", ("b",)), shell.run("echo a"), str) or "")
