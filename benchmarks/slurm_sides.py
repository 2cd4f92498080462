"""Sides of the comparison with a real Slurm: the same work as submitted by users of
each, and its cost.

Jobs write their own start and end to a file, so that no side's own timing is used.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import yaml

from benchmarks.cold_start import WINDLASS, Home
from benchmarks.slurm_lab import Slurm
from windlass.node.runtime.syscalls import descendants

PATIENCE_SECONDS = 300.0
_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Work:
    """A job of one process. ``seconds`` it lasts; ``limit_minutes``: none where 0."""

    name: str
    gpus: int = 1
    seconds: float = 0.0
    limit_minutes: int = 0

    def script(self, notes: Path) -> str:
        """Writes ``NAME s TIME`` at its start and ``NAME e TIME`` at its end."""
        rest = f"; sleep {self.seconds:g}; date '+{self.name} e %s.%N' >> {quote(str(notes))}"
        return f"date '+{self.name} s %s.%N' >> {quote(str(notes))}" + (rest if self.seconds else "")


class Side(ABC):
    """One of the two, which runs. ``notes`` is where jobs write."""

    name: str
    environment: dict[str, str]
    notes: Path

    @abstractmethod
    def submitting(self, work: Work) -> list[str]:
        """The command that queues one job and returns."""

    @abstractmethod
    def following(self, work: Work, tasks: int = 1) -> list[str]:
        """The command that runs a job of so many tasks with ``work.gpus`` each and shows what it prints."""

    @abstractmethod
    def batch(self, work: Work, count: int) -> list[str]:
        """The command that queues so many alike jobs at once: a job array, one Job of many pods."""

    @abstractmethod
    def daemons(self) -> dict[str, int]:
        """Processes that serve, by name."""

    def command(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Raises ``RuntimeError`` when it fails."""
        done = subprocess.run(
            words, env=self.environment, cwd=self.notes.parent, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
        return done

    def read_notes(self, name: str = "", mark: str = "s") -> list[float]:
        """Moments of ``time.time``, in order."""
        lines = [line.split() for line in self.notes.read_text().splitlines()]
        return sorted(float(at) for who, what, at in lines if what == mark and (who == name or not name))

    def until(self, count: int, name: str = "", mark: str = "s") -> list[float]:
        """The notes, once there are so many. Raises ``TimeoutError``."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found := self.read_notes(name, mark)) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: {len(found)} of {count} in {PATIENCE_SECONDS:g} s")
            time.sleep(0.02)
        return found


class SlurmSide(Side):
    def __init__(self, name: str, lab: Slurm) -> None:
        self.name, self.lab = name, lab
        self.environment = lab.environment
        self.notes = lab.folder / "notes"
        self.notes.touch()

    def submitting(self, work: Work) -> list[str]:
        return ["sbatch", *self._options(work), "--wrap", work.script(self.notes)]

    def following(self, work: Work, tasks: int = 1) -> list[str]:
        cards = f"--gres=gpu:{work.gpus * tasks}"
        return ["srun", f"--ntasks={tasks}", cards, "sh", "-c", f"echo hi; {work.script(self.notes)}"]

    def batch(self, work: Work, count: int) -> list[str]:
        return ["sbatch", f"--array=0-{count - 1}", *self._options(work), "--wrap", work.script(self.notes)]

    def daemons(self) -> dict[str, int]:
        return self.lab.pids()

    def _options(self, work: Work) -> list[str]:
        limit = [f"--time={work.limit_minutes}"] if work.limit_minutes else []
        return [f"--job-name={work.name}", "--output=/dev/null", f"--gres=gpu:{work.gpus}", *limit]


class BoxSide(Side):
    def __init__(self, home: Home) -> None:
        self.name = "Windlass"
        self.environment = home.environment
        self.notes = home.path / "notes"
        self.notes.touch()
        self._manifest = home.path / "batch.yaml"

    def submitting(self, work: Work) -> list[str]:
        limit = [f"--time={work.limit_minutes}m"] if work.limit_minutes else []
        given = [f"--name={work.name}", f"--gpus={work.gpus}", *limit]
        return [WINDLASS, "submit", *given, "--", "sh", "-c", work.script(self.notes)]

    def following(self, work: Work, tasks: int = 1) -> list[str]:
        given = [f"--nodes={tasks}", f"--gpus={work.gpus}", "--quiet"]
        return [WINDLASS, "run", *given, "--", "sh", "-c", f"echo hi; {work.script(self.notes)}"]

    def batch(self, work: Work, count: int) -> list[str]:
        self._manifest.write_text(yaml.safe_dump(_many_pods(work, count, self.notes)))
        return [WINDLASS, "apply", "-f", str(self._manifest)]

    def daemons(self) -> dict[str, int]:
        """By the role in the name of the process: the command line of all is that of the supervisor."""
        return {
            _name(pid).removeprefix("wl-"): pid
            for pid in descendants(os.getpid())
            if "windlass.app" in _words(pid)
        }


def _many_pods(work: Work, count: int, notes: Path) -> dict[str, object]:
    container = {
        "name": "main",
        "image": "windlass.dev/host",
        "command": ["sh", "-c", work.script(notes)],
        "resources": {"limits": {"nvidia.com/gpu": work.gpus}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": work.name},
        "spec": {
            "schedulerName": "windlass",
            "minAvailable": 1,
            "tasks": [{"name": "main", "replicas": count, "template": template}],
        },
    }


# -- what it costs -----------------------------------------------------------------------------


def adopt_orphans() -> None:
    """Daemons and their jobs that detach themselves become children of this process, so that none of their CPU is
    lost. Raises ``OSError``."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot adopt orphans")


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of processor time, user and system. ``clients``: commands that were typed; ``daemons``: those that
    serve; ``rest``: what they started for jobs, with the jobs themselves."""

    clients: float
    daemons: float
    rest: float

    @property
    def whole(self) -> float:
        return self.clients + self.daemons + self.rest


class CpuBook:
    """CPU time since its creation, by ``side``. Meanwhile nothing else may run below
    this process."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._clients = 0.0
        self._begin = self._now()

    def client(self, action: Callable[[], object]) -> None:
        """Commands, which have ended when ``action`` has."""
        before = _collected()
        action()
        self._clients += _collected() - before

    def close(self) -> Cpu:
        begin, end = self._begin, self._now()
        daemons = end[1] - begin[1]
        return Cpu(self._clients, daemons, end[0] - begin[0] - daemons - self._clients)

    def _now(self) -> tuple[float, float]:
        """Return the CPU time of all processes below this one, including ended ones; of
        the daemons alone."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        every = _collected() + sum(_used(pid, ended=True) for pid in descendants(os.getpid()))
        return every, sum(_used(pid, ended=False) for pid in self._side.daemons().values())


def _collected() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _used(pid: int, *, ended: bool) -> float:
    """Return the CPU time of a process; with that of its collected children, if ``ended``."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11 : 15 if ended else 13])) / _TICKS


def memory_mib(side: Side) -> float:
    """Return the memory of the daemons; shared pages count once (proportional set size)."""
    total = 0
    for pid in side.daemons().values():
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return round(total / 1024, 1)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def first_line(side: Side, words: Sequence[str]) -> tuple[float, float]:
    """Seconds until the command printed ``hi``, and until it ended. Raises ``RuntimeError``."""
    begin = time.perf_counter()
    with subprocess.Popen(
        words,
        env=side.environment,
        cwd=side.notes.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - begin
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    if process.returncode or not line.rstrip().endswith("hi"):
        raise RuntimeError(f"{' '.join(words)}: {line!r} {errors!r}")
    return seconds, time.perf_counter() - begin
