"""Run a short command to its end and take its output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Captured:
    """Exit status (negative: killed by that signal) and both outputs."""

    returncode: int
    stdout: bytes
    stderr: bytes


def capture(
    argv: Sequence[str],
    *,
    extra_env: Mapping[str, str] | None = None,
    timeout_seconds: float = 60.0,
) -> Captured:
    """Run a command and capture its output.

    Raises ``OSError`` (it cannot be started) and ``TimeoutError`` (it was killed after
    the timeout).
    """
    env = {**os.environ, **(extra_env or {})}
    try:
        done = subprocess.run(
            list(argv),
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{argv[0]} took more than {timeout_seconds:g} s") from error
    return Captured(done.returncode, done.stdout, done.stderr)
