"""What users of other tools type is answered with what it is here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.cli import foreign_commands
from windlass.cli.jobs.logs.log_lines import duration_seconds
from windlass.cli.main import COMMANDS
from windlass.cli.queues.settings import parse_settings


def test_every_command_that_is_named_instead_exists(windlass):
    for typed, instead in foreign_commands.COMMANDS.items():
        done = windlass(typed)
        assert done.code == 3
        assert done.err.splitlines()[-1] == f"try: {instead}"
        program, command, *_ = instead.split()
        assert program == "kubectl" or command in COMMANDS
        assert typed not in COMMANDS


@pytest.mark.parametrize("command", ["run", "submit"])
def test_every_option_that_is_named_instead_exists(windlass, command):
    known = windlass("run", "--help").out + windlass("submit", "--help").out
    for typed, instead in foreign_commands.OPTIONS.items():
        done = windlass(command, typed, "--", "true")
        assert done.code == 2
        assert done.err.splitlines()[-2] == f"try: {instead}"
        assert all(
            word.strip(",") in known for word in instead.split() if word.startswith("--") and word != "--"
        )


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        (("--gpus", "a100:2"), "--gpus 2 --gpu-model a100"),
        (("-g", "gpu:h100:1"), "--gpus 1 --gpu-model h100"),
        (("--gpus=gpu:4",), "--gpus 4"),
        (("--gpus", "all"), "--gpus N, as many as windlass node ls shows for one node"),
        (
            ("-o", "slurm-%j.out"),
            "> FILE   (stores the output of this command; windlass logs JOB prints that of a job)",
        ),
        (
            ("--output=logs/a.out",),
            "> FILE   (stores the output of this command; windlass logs JOB prints that of a job)",
        ),
        (("-e", "train.err"), "windlass logs JOB   (also shows standard error)"),
    ],
)
def test_values_as_slurm_has_them_are_answered_with_what_to_type(windlass, typed, instead):
    done = windlass("submit", *typed, "--", "true")
    assert done.code == 2
    assert f"try: {instead}" in done.err.splitlines()


def test_what_is_no_number_of_cards_at_all_is_not_taken_for_one(windlass):
    assert "--gpu-model" not in windlass("submit", "--gpus", "many", "--", "true").err


@pytest.mark.parametrize("command", ["create", "set"])
@pytest.mark.parametrize(
    "typed", ["--weight", "-w", "--capability", "--deserved", "--guarantee", "--quota", "--parent"]
)
def test_settings_of_queues_are_written_without_dashes(windlass, command, typed):
    done = windlass("queue", command, "team", typed, "2")
    assert done.code == 2
    (remedy,) = [line for line in done.err.splitlines() if line.startswith("try: ") and "=" in line]
    words = remedy.removeprefix("try: ").rpartition("as in ")[2]
    example = words.replace("NUMBER", "2").replace("QUEUE", "root")
    assert parse_settings([example])[0], example


def test_of_other_commands_the_words_of_slurm_say_nothing(windlass):
    assert windlass("ps", "--gres", "x").err.splitlines()[-1] == "try: windlass ps --help"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("30", "30m"),
        ("1:30", "1m30s"),
        ("01:30:00", "1h30m"),
        ("1-12", "1d12h"),
        ("1-12:30", "1d12h30m"),
        ("2-00:00:05", "2d5s"),
        ("30m", ""),
        ("soon", ""),
        ("0", ""),
        ("1:2:3:4", ""),
    ],
)
def test_time_limits_of_slurm_are_durations(text, meant):
    assert foreign_commands.duration_from_slurm(text) == meant


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_a_duration_is_as_long_as_the_limit(days, hours, minutes, seconds):
    meant = foreign_commands.duration_from_slurm(f"{days}-{hours:02}:{minutes:02}:{seconds:02}")
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert (duration_seconds("--time", meant) if meant else 0) == whole


def test_lines_for_sbatch_are_found_in_scripts_only(tmp_path):
    script = "#!/bin/bash\n#SBATCH --gres=gpu:2\n#SBATCH -t 10\n#SBATCH --gres=gpu:1\necho '#SBATCH'\n"
    (tmp_path / "job.sh").write_text(script)
    (tmp_path / "notes").write_text("#SBATCH --time=1\n")
    (tmp_path / "folder").mkdir()
    assert foreign_commands.slurm_directives(["bash", "job.sh"], tmp_path) == ("job.sh", ["--gres", "-t"])
    assert foreign_commands.slurm_directives(["./job.sh"], tmp_path) == ("./job.sh", ["--gres", "-t"])
    assert foreign_commands.slurm_directives(["bash", "-x", "job.sh", "1"], tmp_path) == (
        "job.sh",
        ["--gres", "-t"],
    )
    assert foreign_commands.slurm_directives(["cat", "notes"], tmp_path) == ("", [])
    assert foreign_commands.slurm_directives(["folder", "nowhere"], tmp_path) == ("", [])
    assert foreign_commands.slurm_directives(["echo", "one", "job.sh"], tmp_path) == ("", [])
