"""Run command lines in this process, against a cluster in a dictionary and a clock that stands still."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakecluster import FakeCluster, box

from windlass.cli import bootstrap, main, terminal
from windlass.cli.invocation import InvocationContext
from windlass.kits.clock import FakeClock

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def cluster() -> FakeCluster:
    return box()


@pytest.fixture
def windlass(
    cluster: FakeCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """``windlass("ps", "-o", "json")`` on the ``cluster`` of the test."""
    monkeypatch.setenv("WINDLASS_STATE", str(tmp_path / "state"))
    for name in ("WINDLASS_KUBECONFIG", "WINDLASS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    # The cluster of the test is there: a submitted job needs no control plane on this machine.
    monkeypatch.setattr(bootstrap, "start", lambda *_, **__: None)

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        context = InvocationContext(connect=cluster.client, clock=FakeClock())  # type: ignore[arg-type]
        code = main.run(list(arguments), context)
        told = capsys.readouterr()
        return Done(code, told.out, told.err)

    return run


@pytest.fixture
def completed(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], list[str]]:
    """What the shell is offered for the last word of a command line."""

    def complete(line: str) -> list[str]:
        monkeypatch.setenv("_WINDLASS_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            main.run([], InvocationContext(connect=cluster.client))  # type: ignore[arg-type]
        told = capsys.readouterr()
        assert not told.err
        return [line.partition(",")[2] for line in told.out.splitlines() if line]

    return complete


@pytest.fixture
def transcript(windlass: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Compare command lines and their output on a terminal of 80 cells with a file; ``UPDATE_GOLDEN=1`` writes it
    anew."""
    monkeypatch.setattr(terminal, "_width", lambda *_: 80)

    def check(name: str, *lines: str) -> None:
        import shlex

        text = ""
        for line in lines:
            done = windlass(*shlex.split(line))
            text += f"$ windlass {line}\n{done.out}{done.err}[{done.code}]\n\n"
        path = GOLDEN / f"{name}.txt"
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text)
        assert path.exists(), f"{path.name} is missing: run the tests once with UPDATE_GOLDEN=1"
        assert text == path.read_text()
        assert all(len(line) <= 200 for line in text.splitlines())

    return check
