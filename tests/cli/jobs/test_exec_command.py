"""Command line of ``windlass exec``: options before and after the job."""

from __future__ import annotations

import pytest

from windlass.cli.commands.jobs.exec import command


@pytest.mark.parametrize(
    ("line", "rank", "words"),
    [
        ("t -- ls -l", None, ("ls", "-l")),
        ("--rank 1 t -- ls", "1", ("ls",)),
        ("t --rank 1 -- ls -- x", "1", ("ls", "--", "x")),
        ("t ls --rank 1", None, ("ls", "--rank", "1")),
        ("t sh -c -- ls", None, ("sh", "-c", "--", "ls")),
    ],
)
def test_options_may_follow_the_job_up_to_the_dashes(
    line: str, rank: str | None, words: tuple[str, ...]
) -> None:
    with command.make_context("exec", line.split()) as context:
        found = tuple(word for index, word in enumerate(context.params["words"]) if index or word != "--")
        assert (context.params["job"], context.params["rank"], found) == ("t", rank, words)
