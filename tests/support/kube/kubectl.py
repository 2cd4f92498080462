"""Stock kubectl against a cluster of the tests."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any


def find() -> str | None:
    """The kubectl to use: ``$KUBECTL``, or the one on the PATH."""
    return os.environ.get("KUBECTL") or shutil.which("kubectl")


class Kubectl:
    """``run`` fails the test unless kubectl succeeds; ``fail`` unless it fails."""

    def __init__(self, binary: str, kubeconfig: Path, namespace: str, home: Path) -> None:
        self.namespace = namespace
        self._argv = [binary, f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"]
        self._argv.append(f"--cache-dir={home / 'cache'}")
        self._env = {"PATH": os.environ.get("PATH", ""), "HOME": str(home)}

    def _call(
        self, arguments: tuple[str, ...], stdin: Any, seconds: float
    ) -> subprocess.CompletedProcess[str]:
        text = None
        if stdin is not None:
            documents = stdin if isinstance(stdin, list) else [stdin]
            text = stdin if isinstance(stdin, str) else "\n".join(map(json.dumps, documents))
        return subprocess.run(
            [*self._argv, *arguments],
            input=text,
            capture_output=True,
            text=True,
            env=self._env,
            timeout=seconds,
            check=False,
        )

    def run(self, *arguments: str, stdin: Any = None, seconds: float = 120) -> str:
        """Standard output. ``stdin``: a manifest, several, or text."""
        done = self._call(arguments, stdin, seconds)
        assert done.returncode == 0, (
            f"kubectl {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def both(self, *arguments: str, stdin: Any = None) -> tuple[str, str]:
        """Standard output and standard error of a success."""
        done = self._call(arguments, stdin, 120)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    def fail(self, *arguments: str, stdin: Any = None, seconds: float = 120) -> str:
        """Standard error of a failure."""
        done = self._call(arguments, stdin, seconds)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} succeeded\n{done.stdout}"
        return done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))

    def table(self, *arguments: str) -> list[list[str]]:
        """The words of each line of a table; columns are cut where the heading's words begin."""
        lines = self.run(*arguments).splitlines()
        starts = [0] + [
            index
            for index in range(3, len(lines[0]))
            if lines[0][index] != " " and lines[0][index - 3 : index] == "   "
        ]
        bounds = list(zip(starts, [*starts[1:], None], strict=True))
        return [[line[start:stop].strip() for start, stop in bounds] for line in lines]

    def follow(self, *arguments: str) -> Following:
        return Following([*self._argv, *arguments], self._env)


class Following:
    """A kubectl that goes on (``-w``). ``line()`` waits for the next line of its output."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))

    def line(self, seconds: float = 120) -> str:
        """The next line; empty when none comes in time."""
        try:
            return self._lines.get(timeout=seconds)
        except queue.Empty:
            return ""

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
