"""Reasons that ``windlass scheduler`` and ``windlass controller`` report at their end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_DEFECT = """
import sys
from windlass.app import remote
from windlass.app.options import RemoteOptions
from windlass.observe import logs

def broken(options):
    logs.configure(style={style!r})
    raise ZeroDivisionError("a defect")

remote._scheduler = broken
class Options:
    role = "scheduler"
remote.run_remote(Options())
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("role", ["scheduler", "controller"])
def test_why_it_ends_is_a_line_of_the_log(role: str, tmp_path: Path) -> None:
    arguments = ("-m", "windlass.app", role, "--kubeconfig", str(tmp_path / "none"))
    done = run(*arguments, "--log-format", "json")
    last = [json.loads(line) for line in done.stderr.splitlines()][-1]
    assert (last["level"], last["code"], done.returncode) == ("error", "WL-KUBECONFIG-404", 3)
    assert last["remedies"]
    words = run(*arguments)
    assert words.stderr.startswith("error[WL-KUBECONFIG-404]: ")
    assert words.returncode == 3


def test_so_is_a_defect() -> None:
    done = run("-c", _DEFECT.format(style="json"))
    (last,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert last["message"] == "ended by a defect"
    assert "ZeroDivisionError: a defect" in last["traceback"]
    assert done.returncode == 1
    assert "\nZeroDivisionError: a defect\n" in run("-c", _DEFECT.format(style="text")).stderr
