"""A whole box for end-to-end tests: `windlass up` in a folder of its own, driven as a user drives it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from windlass.kits.state import StateFolder

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
WINDLASS = str(Path(sys.executable).parent / "windlass")


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
        left = self.processes()
        for pid in left:
            os.kill(pid, 9)
        logs = self.logs() if left else ""
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not left, f"processes left after windlass down: {left}\n{logs}"

    def run(
        self, command: Sequence[str], *, stdin: str | None = None, check: bool = True, timeout: float = 60
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

    def get(self, *arguments: str) -> Any:
        """``get … -o json``, decoded."""
        return json.loads(self.windlass("get", *arguments, "-o", "json").stdout)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        return self.get(*arguments)["items"]

    def wait_for(self, what: str, condition: Callable[[], T], seconds: float = 30) -> T:
        """Poll until ``condition()`` is truthy."""
        deadline = time.monotonic() + seconds
        result = condition()
        while not result:
            if time.monotonic() > deadline:
                state = self.windlass("get", "pods", "-A", "-o", "wide", check=False).stdout
                raise AssertionError(f"{what}: not within {seconds:.0f} s\n{state}{self.logs()}")
            time.sleep(0.1)
            result = condition()
        return result

    def job_phase(self, name: str, namespace: str = "default") -> str:
        job = self.get(f"vcjob/{name}", "-n", namespace)
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
