"""Remote shell between pods: arguments as programs write them, and the stand-in for a server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from windlass.node.pods.files import remote_shell
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

    def without(*argv: str) -> list[str] | None:
        return remote_shell.without_server(argv, tmp_path)

    assert without(str(server), "-De") is None
    assert without(str(server), "-De", "-f", str(configuration)) == list(remote_shell.STAND_IN)
    configuration.touch()
    assert without(str(server), "-De", "-f", str(configuration)) is None
    assert without(str(tmp_path / "no" / "sshd")) == list(remote_shell.STAND_IN)
    assert without() is None


def test_missing_server_in_a_script_is_replaced(tmp_path: Path) -> None:
    there = tmp_path / "bin" / "sshd"
    there.parent.mkdir()
    there.touch()
    script = f"mkdir -p /var/run/sshd; /no/sbin/sshd -D;\n{there} && /no/bin/sshd_config /no/bin/sshd"
    found = remote_shell.without_server(["/bin/sh", "-c", script, "x"], tmp_path)
    stand_in = tmp_path / "rsh" / "sshd"
    assert found is not None
    assert found[2] == (f"mkdir -p /var/run/sshd; {stand_in} -D;\n{there} && /no/bin/sshd_config {stand_in}")
    assert (found[:2], found[3:]) == (["/bin/sh", "-c"], ["x"])
    assert remote_shell.without_server(["python", "-c", "/no/sbin/sshd"], tmp_path) is None
    assert remote_shell.without_server(["sh", "-c", "sshd -D"], tmp_path) is None


def test_stand_in_waits_in_the_foreground_only(tmp_path: Path) -> None:
    program = str(remote_shell.install(tmp_path) / "sshd")
    assert subprocess.run([program], timeout=30, check=False).returncode == 0
    with subprocess.Popen([program, "-De"]) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.3)
        waiting.terminate()
        assert waiting.wait(30) == 0


def test_programs_are_written_once_and_run(tmp_path: Path) -> None:
    directory = remote_shell.install(tmp_path)
    assert sorted(entry.name for entry in directory.iterdir()) == ["ssh", "sshd", "windlass-rsh"]
    before = (directory / "ssh").stat().st_mtime_ns
    remote_shell.install(tmp_path)
    assert (directory / "ssh").stat().st_mtime_ns == before
