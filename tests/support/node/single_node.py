"""A whole box for end-to-end tests: `windlass up` in a folder of its own, driven as a user drives it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from windlass.api.errors import StatusError
from windlass.api.resources import Resource, find
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.client.errors import Unreachable
from windlass.kits.state import StateFolder

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[3]
WINDLASS = str(Path(sys.executable).parent / "windlass")
_DYING_SECONDS = 60.0
"""Seconds that processes may take to vanish after windlass down has ended them."""


class Absent(AssertionError):
    """There is no such object."""


class Box:
    """``with Box("--gpus", "simulated:4") as box: box.windlass("ps")``.

    The state folder is a fresh temporary one; leaving the block runs ``windlass down`` and checks that no
    process of it is left.
    """

    def __init__(self, *options: str, environment: dict[str, str] | None = None) -> None:
        self.options = options
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-box-"))
        self.state = StateFolder(self.folder / "state")
        self._environment = environment or {}

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        return {
            **os.environ,
            "PATH": path,
            "WINDLASS_STATE": str(self.state.path),
            "KUBECONFIG": str(self.state.kubeconfig),
            "HOME": str(self.folder),
            "NO_COLOR": "1",
            **self._environment,
        }

    def __enter__(self) -> Box:
        try:
            self.windlass("up", *self.options, "--detach")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything, also what a failed test left; raises if a process survives."""
        self.run([WINDLASS, "down"], check=False)
        left = self.left()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        logs = self.logs() if left else ""
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not left, f"processes left after windlass down: {left}\n{logs}"

    def run(
        self, command: Sequence[str], *, stdin: str | None = None, check: bool = True, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=timeout,
            check=False,
            cwd=self.folder,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}{self.logs()}"
            )
        return done

    def windlass(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.run([WINDLASS, *arguments], **options)

    def kubectl(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.run(["kubectl", *arguments], **options)

    def client(self) -> BlockingClient:
        """The administrator's, on the Unix socket, as the command line has it."""
        return BlockingClient(Connection(unix_socket=str(self.state.socket)))

    def get(self, what: str, name: str = "", *, namespace: str = "default") -> dict[str, Any]:
        """One object: ``get("vcjob/train")`` or ``get("vcjob", "train")``. Fails with the server's words.

        Asked in this process: tests look at the box a thousand times, and a command line costs a fifth
        of a second each time. What the command line prints is tested where that is the subject.
        """
        kind, _, named = what.partition("/")
        resource = _kind(kind)
        within = namespace if resource.namespaced else None
        return self._ask(lambda client: client.get(resource, name or named, within))

    def items(self, kind: str, *, namespace: str = "default", labels: str = "") -> list[dict[str, Any]]:
        """All objects of a kind; ``namespace`` only counts for kinds that live in one."""
        resource = _kind(kind)
        within = namespace if resource.namespaced else None
        return self._ask(lambda client: client.list(resource, within, labels=labels).items)

    def _ask(self, question: Callable[[BlockingClient], T]) -> T:
        try:
            with self.client() as client:
                return question(client)
        except (StatusError, Unreachable) as error:
            absent = isinstance(error, StatusError) and error.code == 404
            raise (Absent if absent else AssertionError)(f"{error}\n{self.logs()}") from error

    def wait_for(self, what: str, condition: Callable[[], T], seconds: float = 120) -> T:
        """Poll until ``condition()`` is truthy. An object or a field that is not there yet is waited for."""
        missing = ""

        def look() -> T | None:
            nonlocal missing
            try:
                return condition()
            except (Absent, LookupError) as error:
                missing = f" ({error!r:.200})"
                return None

        deadline = time.monotonic() + seconds
        result = look()
        while not result:
            if time.monotonic() > deadline:
                state = self.windlass("get", "pods", "-A", "-o", "wide", check=False).stdout
                raise AssertionError(f"{what}: not within {seconds:.0f} s{missing}\n{state}{self.logs()}")
            time.sleep(0.1)
            result = look()
        return result

    def job_phase(self, name: str, namespace: str = "default") -> str:
        job = self.get("vcjob", name, namespace=namespace)
        return job.get("status", {}).get("state", {}).get("phase", "")

    def logs(self, lines: int = 25) -> str:
        """The ends of the processes' logs, for a failed assertion."""
        parts = []
        for path in sorted(self.state.logs.glob("*.log")) if self.state.logs.is_dir() else ():
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append(f"\n--- {path.name}\n" + "\n".join(tail))
        return "".join(parts)

    def processes(self) -> list[int]:
        """Processes of this machine whose command line or environment names the state folder."""
        return processes_naming(self.state.path)

    def left(self) -> dict[int, str]:
        """Return :func:`left_of` the state folder: nothing, if all has ended."""
        return left_of(self.state.path)


def left_of(folder: Path) -> dict[int, str]:
    """Return the processes that still name the folder after a minute, with their command lines.

    The kernel takes killed processes apart in its own time.
    """
    deadline = time.monotonic() + _DYING_SECONDS
    while (
        left := {pid: command_of(pid) for pid in processes_naming(folder)}
    ) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _kind(word: str) -> Resource:
    found = find(word)
    assert found is not None, f"there is no kind {word}"
    return found


def command_of(pid: int) -> str:
    """Return the command line of a process, with its state; empty if it has ended meanwhile."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return f"{state} {words}"


def processes_naming(folder: Path) -> list[int]:
    """Processes of this machine, but this one, whose command line or environment names the folder."""
    needle = str(folder).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if needle in (entry / "cmdline").read_bytes() or needle in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
