"""``windlass help``, ``completion`` and ``crds``: what needs no cluster, and what a shell completes with one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass import items
from windlass.api.reasons import FACTS, Reason
from windlass.cli import main
from windlass.cli.generation.item_reasons import ITEM_REASONS


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


def test_help_explains_codes_and_reasons_offline(windlass, cluster):
    cluster.down = True
    assert windlass("help", "WL-QUEUE-404").out.startswith("WL-QUEUE-404: there is no such queue\n")
    assert "Slurm:" in windlass("help", "insufficientresources").out
    assert windlass("help", "ps").out.startswith("Usage: windlass ps")
    assert windlass("help", "deadlineexceeded").out.startswith(
        "DeadlineExceeded: cause of the end of a pod\n"
    )
    assert "spec.outputs.path (--output)" in windlass("help", "outputUnwritable").out
    assert windlass("help", "HTTP503").out.startswith("HTTP503: reason of a generation job")
    theirs = windlass("help", "jobHeldAdmin").out.splitlines()
    assert theirs[0] == "JobHeldAdmin: term of Slurm for 1 reason of Windlass"
    assert theirs[-1].split() == ["SchedulingGated:", *FACTS[Reason.SCHEDULING_GATED].meaning.split()]
    assert {*json.loads(windlass("help", "Resources", "-o", "json").out)["words"]} >= {
        "InsufficientResources",
        "DevicesFragmented",
    }
    assert json.loads(windlass("help", "WL-JOB-413", "-o", "json").out)["exitStatus"] == 6


def test_the_reasons_of_rows_and_drivers_have_a_meaning():
    kinds = "PROGRAM|INFRASTRUCTURE|PERMANENT"
    pattern = rf'(?:PlaceError\(|_fail\(|(?:{kinds}|"program"|"infrastructure"), )"([A-Z][A-Za-z]+)"'
    sources = [path.read_text() for path in Path(items.__file__).parent.rglob("*.py")]
    written = {found for text in sources for found in re.findall(pattern, text)}
    assert len(written) > 10
    assert written - ITEM_REASONS.keys() == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(windlass, shell):
    text = windlass("completion", shell).out
    assert "_WINDLASS_COMPLETE" in text
    assert json.loads(windlass("completion", shell, "-o", "json").out) == {"shell": shell, "script": text}


def test_completion_is_for_the_shell_that_one_has(windlass, monkeypatch):
    monkeypatch.setenv("SHELL", "/usr/local/bin/zsh")
    assert windlass("completion").out == windlass("completion", "zsh").out
    monkeypatch.setenv("SHELL", "/bin/dash")
    done = windlass("completion")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err.splitlines()[0] == "error[WL-USE-400]: $SHELL is /bin/dash, for which there is no completion"
    )
    assert done.err.splitlines()[-1] == "try: windlass completion bash"
    monkeypatch.delenv("SHELL")
    assert "$SHELL is not set" in windlass("completion").err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("windlass logs tr", ["train"]),
        ("windlass run -q re", ["research"]),
        ("windlass node drain sim", ["sim-2", "sim-10"]),
        ("windlass get qu", ["queues", "quota"]),
        ("windlass get nodes b", ["box"]),
        ("windlass get node/b", ["node/box"]),
        ("windlass pu", []),
        ("windlass que", ["queue"]),
    ],
)
def test_live_names_are_completed(completed, words, expected):
    assert completed(words) == expected


def test_completion_is_silent_when_nothing_answers(completed, cluster):
    cluster.down = True
    assert completed("windlass logs ") == []


def test_crds_are_yaml(windlass):
    import yaml

    found = list(yaml.safe_load_all(windlass("crds").out))
    assert {crd["kind"] for crd in found} == {"CustomResourceDefinition"}
    assert "queues.scheduling.volcano.sh" in {crd["metadata"]["name"] for crd in found}
    assert windlass("crds", "-o", "yaml").out == windlass("crds").out
    assert json.loads(windlass("crds", "-o", "json").out) == found


@pytest.mark.parametrize("words", [("crds", "-o", "wide"), ("completion", "bash", "-o", "yaml")])
def test_other_formats_are_refused(windlass, words):
    done = windlass(*words)
    assert (done.code, done.out) == (2, "")
    assert "is not an output format of this command" in done.err


@pytest.mark.parametrize("words", [("crds", "--bogus"), ("completion", "tcsh")])
def test_their_errors_are_json_for_a_program(windlass, words):
    done = windlass(*words, "-o", "json")
    assert done.code == 2
    assert json.loads(done.err)["code"] == "WL-USE-400"


@pytest.mark.parametrize("noun", ["queue", "node", "gpu", "sim"])
def test_verbs_are_told_of_in_whole(windlass, noun):
    told = windlass(noun, "--help").out
    assert "..." not in told.partition("Commands:")[2]
    assert all(
        line.endswith((".", ",")) or line[:12].strip()
        for line in told.partition("Commands:")[2].splitlines()[1:]
    )


def test_help_says_what_options_want_not_what_they_are_made_of():
    def walk(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag and not option.count:
                said = option.metavar or ("CHOICE" if isinstance(option.type, click.Choice) else "")
                yield f"{context.command_path} {option.opts[-1]}", said
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from walk(inner, click.Context(inner, info_name=name, parent=context))

    found = dict(walk(main.windlass, click.Context(main.windlass, info_name="windlass")))
    assert len(found) > 100
    assert [name for name, said in found.items() if not said] == []  # click would name its type
