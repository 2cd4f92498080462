"""The state folder: names, modes, and what can be wrong with it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from windlass.kits import state
from windlass.kits.state import StateError, StateFolder, StateProblem, filesystem_of


def test_it_is_found_by_flag_then_variable_then_home(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("WINDLASS_STATE", raising=False)
    assert StateFolder.locate().path == Path("/h/.local/state/windlass")
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    assert StateFolder.locate().path == Path("/x/windlass")
    monkeypatch.setenv("WINDLASS_STATE", "/v")
    assert StateFolder.locate().path == Path("/v")
    assert StateFolder.locate("~/f").path == Path("/h/f")


def test_only_its_owner_can_look_in(tmp_path: Path):
    folder = StateFolder(tmp_path / "a" / "b")
    folder.prepare()
    for path in (folder.path, folder.pki, folder.node, folder.logs, folder.database.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    folder.path.chmod(0o755)
    folder.prepare()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert not list(folder.path.glob(".*"))


def test_a_long_path_puts_the_socket_elsewhere(tmp_path: Path):
    short, long = StateFolder(tmp_path), StateFolder(tmp_path / ("x" * 100))
    assert short.socket == tmp_path / "windlass.sock" or len(str(tmp_path)) > 80
    assert len(os.fsencode(long.socket)) < 100
    assert long.socket != StateFolder(tmp_path / ("y" * 100)).socket
    long.prepare()
    assert stat.S_IMODE(long.socket.parent.stat().st_mode) == 0o700
    long.socket.parent.rmdir()


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        (errno.EROFS, StateProblem.READ_ONLY),
        (errno.EACCES, StateProblem.DENIED),
        (errno.ENOSPC, StateProblem.FULL),
        (errno.EDQUOT, StateProblem.FULL),
        (errno.ENOTDIR, StateProblem.NOT_A_FOLDER),
        (errno.EIO, StateProblem.OTHER),
    ],
)
def test_what_the_system_refuses_is_named(
    number: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(state, "write_atomic", refuse)
    with pytest.raises(StateError) as caught:
        StateFolder(tmp_path / "s").prepare()
    assert caught.value.problem == problem
    assert os.strerror(number) in str(caught.value)


def test_a_file_in_the_way(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StateError) as caught:
            StateFolder(path).prepare()
        assert caught.value.problem == StateProblem.NOT_A_FOLDER


def test_another_users_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(StateError) as caught:
        StateFolder(tmp_path / "s").prepare()
    assert caught.value.problem == StateProblem.FOREIGN


def test_a_network_file_system_is_refused_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "filesystem_of", lambda _: "nfs4")
    with pytest.raises(StateError) as caught:
        StateFolder(tmp_path / "s").prepare()
    assert caught.value.problem == StateProblem.NETWORK
    assert "nfs4" in str(caught.value)
    StateFolder(tmp_path / "s").prepare(allow_network=True)


def test_the_file_system_of_a_path():
    assert filesystem_of(Path("/proc/self")) == "proc"
    assert filesystem_of(Path("/proc/self/does/not/exist")) == "proc"
    assert filesystem_of(Path("/"))


def test_the_supervisors_record(tmp_path: Path):
    folder = StateFolder(tmp_path)
    assert folder.read_supervisor() is None
    folder.write_supervisor({"pid": 3})
    assert folder.read_supervisor() == {"pid": 3}
    for broken in (b"", b"{", b"[1]", b"\xff"):
        folder.supervisor.write_bytes(broken)
        assert folder.read_supervisor() is None


def test_equal_folders_are_equal(tmp_path: Path):
    assert StateFolder(tmp_path) == StateFolder(f"{tmp_path}/")
    assert len({StateFolder(tmp_path), StateFolder(tmp_path / "." / "")}) == 1
    assert str(tmp_path) in repr(StateFolder(tmp_path))
