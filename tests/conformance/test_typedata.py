"""The committed type data are those of the real server and of the Go modules that it is built from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from realkube import ADMIN_TOKEN, RealKube

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]


def test_the_type_data_are_current(real_kube: RealKube) -> None:
    if shutil.which("go") is None:
        pytest.skip("no go: the protobuf numbers come from Go's module cache")
    cache = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True)
    sources = Path(cache.stdout.strip()) / "k8s.io" / "api@v0.36.3"
    if not sources.is_dir():
        pytest.skip(f"no {sources.name} in Go's module cache")
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tools/typedata/generate.py"),
            "--check",
            f"--server={real_kube.connection.server}",
            f"--token={ADMIN_TOKEN}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
