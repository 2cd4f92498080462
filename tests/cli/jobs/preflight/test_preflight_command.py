"""Checks of a job's command and directory before it is submitted: no remedy leads to the next error."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script(name: str, content: str, mode: int) -> None:
    Path(name).write_text(content)
    Path(name).chmod(mode)


@pytest.mark.parametrize(
    ("name", "content", "mode", "words", "remedy"),
    [
        ("train.py", "print(1)\n", 0o644, ["train.py", "--lr", "1 2"], "python train.py --lr '1 2'"),
        ("train.py", "print(1)\n", 0o644, ["./train.py"], "python ./train.py"),
        ("train.py", "print(1)\n", 0o755, ["./train.py"], "python ./train.py"),
        ("train.py", "print(1)\n", 0o755, ["train.py"], "python train.py"),
        ("job.sh", "echo\n", 0o644, ["job.sh"], "bash job.sh"),
        ("job", "#!/bin/sh\n", 0o644, ["job", "x"], "sh job x"),
        ("job", "#!/usr/bin/env python3\n", 0o644, ["./job"], "python3 ./job"),
        ("job", "#!/bin/sh\n", 0o755, ["job", "x"], "./job x"),
    ],
)
def test_remedy_for_a_script_starts_it(windlass, name, content, mode, words, remedy):
    script(name, content, mode)
    done = windlass("run", "--", *words)
    assert done.code == 3
    tried = next(line for line in done.err.splitlines() if line.startswith("try: "))
    assert tried == f"try: windlass run -- {remedy}"
    program = shlex.split(remedy)[0]
    assert os.access(program, os.X_OK) or program in ("python", "bash", "sh", "python3")


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("#!/no/such/sh\n", 0o755, "its interpreter /no/such/sh does not exist"),
        ("#!/bin/sh\r\n", 0o755, "its first line ends with a carriage return"),
        ("echo\n", 0o755, "it is a script without a first line that names its interpreter"),
        ("#!/bin/sh\n", 0o644, "it is not executable"),
    ],
)
def test_file_that_the_kernel_refuses_is_reported(windlass, content, mode, why):
    script("job", content, mode)
    assert f"./job cannot be started: {why}" in windlass("run", "--", "./job").err
    assert f"./job cannot be started: {why}" in windlass("submit", "--", "./job").err


def test_missing_program_and_directory(windlass, directory):
    assert windlass("run", "--", "no-such-program").code == 3
    assert "the file does not exist" in windlass("run", "--", "./no-such-program").err
    (directory / "sub").mkdir()
    assert "it is a directory" in windlass("run", "--", "./sub").err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--", "true"),
        ("submit", "--", "true"),
        ("apply", "-f", "a.yaml"),
        ("plan", "-f", "a.yaml"),
        ("sim", "run", "--trace", "trace.csv", "--nodes", "2x8"),
    ],
)
def test_removed_current_directory_is_an_error_of_its_own(windlass, monkeypatch, directory, words):
    gone = directory / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = windlass(*words)
    assert "error[WL-RUN-404]: the current directory does not exist any more" in done.err
    assert "try: cd ~" in done.err
