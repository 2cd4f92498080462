"""Where output goes: terminals of any width, programs that read it, and readers that have gone."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.api.resources import VOLCANO_JOBS
from windlass.cli import terminal
from windlass.cli.tables import cells

LISTS = (
    ["ps"],
    ["queue", "ls"],
    ["queue", "tree"],
    ["node", "ls"],
    ["node", "tree"],
    ["gpu", "ls"],
    ["ps", "--utc"],
)


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
@pytest.mark.parametrize("width", [30, 60, 80, 120, 200])
def test_no_list_wraps(windlass, monkeypatch, words, width):
    whole = windlass(*words)
    monkeypatch.setattr(terminal, "_width", lambda *_: width)
    shown = windlass(*words)
    assert shown.code == whole.code == 0
    assert all(cells(line) <= width for line in shown.out.splitlines())
    assert len(shown.out.splitlines()) == len(whole.out.splitlines())
    if all(cells(line) <= width for line in whole.out.splitlines()):
        assert shown == whole


def test_names_are_shortened_only_where_there_is_no_room(windlass, cluster, monkeypatch):
    name = "a-name-that-is-longer-than-columns-are-on-a-terminal"
    cluster.add(VOLCANO_JOBS, {"metadata": {"name": name}, "spec": {"queue": "a-queue-of-some-length"}})
    monkeypatch.setattr(terminal, "_width", lambda *_: 160)
    assert f"{name}  a-queue-of-some-length  " in windlass("ps").out
    monkeypatch.setattr(terminal, "_width", lambda *_: 90)
    assert f"{name[:23]}…  a-queue-of-…  " in windlass("ps").out


def test_what_is_left_out_is_named_and_wide_has_it(windlass, monkeypatch):
    monkeypatch.setattr(terminal, "_width", lambda *_: 60)
    told = windlass("queue", "ls")
    assert told.out.splitlines()[0].split() == [
        "QUEUE",
        "GPUS",
        "WAITING",
        "FAIR",
        "SHARE",
        "LIMIT",
        "RUNNING",
        "PENDING",
    ]
    assert told.err == (
        "not shown in this width: PRIORITY, WEIGHT, BORROWED, GUARANTEE, DESERVED, STATE"
        " (-o wide shows all columns)\n"
    )
    assert "PRIORITY" in windlass("queue", "ls", "-o", "wide").out


def test_a_program_that_reads_gets_every_cell_whole(windlass, cluster, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    long = {"name": "a-name-that-is-longer-than-columns-are-on-a-terminal"}
    cluster.add(VOLCANO_JOBS, {"metadata": long, "spec": {"queue": "a-queue-of-some-length"}})
    told = windlass("ps")
    assert "a-name-that-is-longer-than-columns-are-on-a-terminal  a-queue-of-some-length  " in told.out
    assert "…" not in told.out + windlass("queue", "tree").out + windlass("node", "ls").out


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["sim", "--help"],
        ["sim", "formats"],
        ["crds"],
        ["completion", "zsh"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_a_command_whose_reader_has_gone_ends_without_a_word(words):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "windlass", *words],
            stdout=writing,
            stderr=writing if words == ["nonsense"] else subprocess.PIPE,
            timeout=120,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr or b"") == (141, b"")


ASCII = {"PYTHONIOENCODING": "", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "LC_ALL": "POSIX"}


@pytest.mark.parametrize("environment", [ASCII, {"PYTHONIOENCODING": "latin-1"}], ids=["posix", "latin-1"])
def test_a_program_reads_utf_8_whatever_the_locale(environment):
    code = "import windlass.cli.terminal as t; [at.line('4 \\xd7 GPU\\u2026') for at in (t.output(), t.errors())]"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, env={**os.environ, **environment}, timeout=120)
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "4 × GPU…\n", "4 × GPU…\n")


def test_a_terminal_without_a_letter_shows_a_question_mark():
    class Screen(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    bytes_ = io.BytesIO()
    screen = terminal.Terminal.of(terminal._open(Screen(bytes_, encoding="ascii", newline="\n")))
    screen.line("4 × GPU…")
    assert bytes_.getvalue() == b"4 ? GPU?\n"


@pytest.mark.parametrize(
    "words",
    [["ps\udcff"], ["ps", "-q", "\udcff"], ["run", "--", "echo", "é\udcff"], ["get", "pods", "\udcff"]],
)
def test_bytes_that_are_no_text_are_refused(windlass, words):
    for form in ([], ["-o", "json"]):
        done = windlass(*form, *words) if words[0] != "run" else windlass("run", *form, *words[1:])
        assert done.code == 2
        assert "this is not UTF-8: " in done.err
        assert "\\xff" in done.err
