"""Running Python as an ordinary user, for tests that are started as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UID = GID = 65534
_SOURCE = Path(__file__).resolve().parents[3] / "src"
_SUPPORT = Path(__file__).resolve().parent


def _environment() -> dict[str, str]:
    packages = [p for p in sys.path if p.endswith("site-packages")]
    path = os.pathsep.join([str(_SOURCE), str(_SUPPORT), *packages])
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin",
        "PYTHONPATH": path,
        "HOME": "/",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def command() -> list[str]:
    """What runs Python as an ordinary user; skips the test, with the reason, where that cannot be."""
    if os.geteuid() != 0:
        return [sys.executable]
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is missing: cannot become an ordinary user")
    # setpriv itself may still start what the user may not: the shell in between may not.
    become = ["setpriv", f"--reuid={UID}", f"--regid={GID}", "--clear-groups", "sh", "-c", 'exec "$0" "$@"']
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        tried = subprocess.run(
            [*become, python, "-c", "import msgspec, windlass"],
            env=_environment(),
            cwd="/",
            capture_output=True,
            check=False,
        )
        if tried.returncode == 0:
            return [*become, python]
    pytest.skip(f"no {version} that an ordinary user may run")


def run(module: str, folder: Path, *arguments: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
    """``python -m module folder …`` as an ordinary user, who owns ``folder``."""
    argv = [*command(), "-m", module, str(folder), *arguments]
    if os.geteuid() == 0:
        os.chown(folder, UID, GID)
    return subprocess.run(
        argv, env=_environment(), cwd="/", capture_output=True, text=True, timeout=timeout, check=False
    )
