"""Runs the ```console blocks of a documentation page and holds their output against what the page shows.

The notation of a block:

``$ command``        runs; lines that begin with ``> `` right after it continue it
``...``              alone on a line: any number of lines, also none
``a ... b``          inside a line: anything
``[exit N]``         the command's exit status; without it the status is 0
any other line       a line of the output (standard output and standard error, as a terminal shows them)

What differs from run to run stands for itself: ages and durations (``12s``), process ids, the port, dates.
Runs of blanks are alike, since the widths of columns depend on such values. The box on the pages is called
``box``, the user's home is ``/home/you``. A command without any expected line may print what it wants.

The commands of a page run in order, each in ``sh -c``; exported variables and the working directory carry over.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

SKIPPED = ("make ", "pip install ")
"""Commands that set up what the tests already stand on: they are shown to the reader and not run."""

_FENCE = re.compile(r"^```console\s*$")
_EXIT = re.compile(r"^\[exit (\d+)\]$")
_STAND_INS = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"(?<![\w.-])(\d+(ms|[smhd]))+(?!\w|[.-]\w)"), "<age>"),
    (re.compile(r"\bpid \d+"), "pid <pid>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a page: what to run, what it must print (``None``: anything), how it must end."""

    line: int
    command: str
    expected: tuple[str, ...] | None = None
    exit_status: int = 0

    @property
    def skipped(self) -> bool:
        return self.command.startswith(SKIPPED)


class PageError(AssertionError):
    """A page says what is not so, or cannot be read."""


def steps(text: str, page: str = "page") -> list[Step]:
    """The commands of all console blocks, in order."""
    found: list[Step] = []
    inside = fresh = False
    for number, line in enumerate(text.splitlines(), 1):
        if not inside:
            inside = bool(_FENCE.match(line))
            fresh = True
            continue
        if line.rstrip() == "```":
            inside = False
        elif line.startswith("$ "):
            found.append(Step(number, line[2:]))
            fresh = False
        elif fresh:
            raise PageError(f"{page}:{number}: a block begins with a command")
        else:
            found[-1] = _extended(found[-1], line)
    if inside:
        raise PageError(f"{page}: a block is not closed")
    return found


def _extended(step: Step, line: str) -> Step:
    if (line == ">" or line.startswith("> ")) and step.expected is None:
        return replace(step, command=f"{step.command}\n{line[2:]}")
    status = _EXIT.match(line)
    if status:
        return replace(step, exit_status=int(status[1]))
    return replace(step, expected=(*(step.expected or ()), line))


def normal(line: str) -> str:
    """The line with stand-ins for what differs from run to run, and single blanks."""
    for pattern, stand_in in _STAND_INS:
        line = pattern.sub(stand_in, line)
    return " ".join(line.split())


def matches(expected: Sequence[str], actual: Sequence[str]) -> bool:
    """Whether the output is what the page shows."""
    shown = [normal(line) for line in expected]
    printed = [normal(line) for line in actual]
    # reachable[j]: the lines of the page so far account for the first j printed lines.
    reachable = [True] + [False] * len(printed)
    for line in shown:
        if line == "...":
            first = reachable.index(True) if True in reachable else len(reachable)
            reachable = [index >= first for index in range(len(reachable))]
        else:
            pattern = re.compile(".*".join(re.escape(part.strip()) for part in line.split("...")))
            reachable = [False] + [
                before and bool(pattern.fullmatch(text))
                for before, text in zip(reachable, printed, strict=False)
            ]
    return reachable[-1]


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    lines: tuple[str, ...]


class Shell:
    """Runs commands one by one; what they export and where they go is there for the next one."""

    def __init__(self, folder: Path, environment: Mapping[str, str], seconds: float = 400) -> None:
        self._notes = folder / "shell"
        self._notes.mkdir()
        self._environment = dict(environment)
        self._seconds = seconds
        self.where = folder / "work"
        self.where.mkdir()

    def run(self, command: str) -> Outcome:
        """Standard output and standard error together, through a file: a process left behind holds no pipe."""
        notes = self._notes
        script = f"trap 'env -0 >{notes}/environment; pwd >{notes}/where' EXIT\n{command}"
        with (notes / "output").open("wb") as output:
            status = subprocess.run(
                ["sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.where,
                timeout=self._seconds,
                check=False,
            ).returncode
        self._remember()
        return Outcome(status, tuple((notes / "output").read_text(errors="replace").splitlines()))

    def _remember(self) -> None:
        pairs = (self._notes / "environment").read_bytes().split(b"\0")
        self._environment = dict(os.fsdecode(pair).split("=", 1) for pair in pairs if pair)
        self.where = Path((self._notes / "where").read_text().rstrip("\n"))


def check(step: Step, outcome: Outcome, translate: Callable[[str], str]) -> str | None:
    """What is wrong with the outcome, in words; ``None`` when the page is right."""
    printed = [translate(line) for line in outcome.lines]
    if outcome.status != step.exit_status:
        fault = f"ended with {outcome.status}, the page says {step.exit_status}"
    elif step.expected is not None and not matches(step.expected, printed):
        fault = "the page shows\n" + "\n".join(f"  | {line}" for line in step.expected)
    else:
        return None
    return f"line {step.line}: $ {step.command}\n{fault}\nit printed\n" + "\n".join(
        f"  | {line}" for line in printed
    )
