"""Remote shell between pods: arguments as programs write them, and the stand-in for a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.node.pods import remote_shell
from windlass.node.streams.remote_shell import parse


@pytest.mark.parametrize(
    ("argv", "host", "words"),
    [
        (
            ["-x", "-o", "ConnectionAttempts=10", "pi-worker-0.pi.ns.svc", "orted", "-mca"],
            "pi-worker-0.pi.ns.svc",
            ["orted", "-mca"],
        ),
        (["-p22", "-l", "me", "you@host", "a b"], "host", ["a b"]),
        (["host"], "host", []),
        (["-V"], "", []),
    ],
)
def test_host_and_command_are_found_after_the_options_of_ssh(
    argv: list[str], host: str, words: list[str]
) -> None:
    assert parse(argv) == (host, words)


def test_server_of_ssh_is_replaced_only_where_it_or_its_configuration_is_missing(tmp_path: Path) -> None:
    server, configuration = tmp_path / "sshd", tmp_path / "config"
    server.touch()
    assert not remote_shell.needs_stand_in([str(server), "-De"])
    assert remote_shell.needs_stand_in([str(server), "-De", "-f", str(configuration)])
    configuration.touch()
    assert not remote_shell.needs_stand_in([str(server), "-De", "-f", str(configuration)])
    assert remote_shell.needs_stand_in([str(tmp_path / "no" / "sshd")])
    assert not remote_shell.needs_stand_in(["sh", "-c", "sshd -D"])


def test_programs_are_written_once_and_run(tmp_path: Path) -> None:
    directory = remote_shell.install(tmp_path)
    assert sorted(entry.name for entry in directory.iterdir()) == ["ssh", "windlass-rsh"]
    before = (directory / "ssh").stat().st_mtime_ns
    remote_shell.install(tmp_path)
    assert (directory / "ssh").stat().st_mtime_ns == before
