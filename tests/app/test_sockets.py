"""The sockets that the supervisor binds."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from realkube import free_ports

from windlass.api.errors import WindlassError
from windlass.app import sockets
from windlass.app.sockets import bind_tcp, bind_unix
from windlass.observe.listening import holder_of


def test_a_wished_port_is_taken_or_refused_with_its_holder():
    (port,) = free_ports(1)
    with bind_tcp(port) as first:
        assert first.getsockname() == ("127.0.0.1", port)
        with pytest.raises(WindlassError) as caught:
            bind_tcp(port)
    assert caught.value.code == "WL-PORT-409"
    assert f"(pid {os.getpid()})" in caught.value.evidence
    assert holder_of(port) == ""


def test_without_a_wish_the_last_port_then_the_default_then_any(monkeypatch: pytest.MonkeyPatch):
    default, last = free_ports(2)
    monkeypatch.setattr(sockets, "DEFAULT_PORT", default)
    with bind_tcp(None, last) as one, bind_tcp(None, last) as two, bind_tcp(None, last) as three:
        assert one.getsockname()[1] == last
        assert two.getsockname()[1] == default
        assert three.getsockname()[1] not in (last, default)


def test_what_is_no_port():
    with pytest.raises(WindlassError, match="is not a port"):
        bind_tcp(70000)


def test_a_stale_socket_is_replaced_and_only_its_owner_may_connect(tmp_path: Path):
    path = tmp_path / "s"
    bind_unix(path).close()
    assert path.exists()
    with bind_unix(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_file_of_the_sockets_name_is_left_alone(tmp_path: Path):
    (tmp_path / "s").write_text("precious")
    with pytest.raises(WindlassError) as caught:
        bind_unix(tmp_path / "s")
    assert caught.value.code == "WL-STATE-409"
    assert (tmp_path / "s").read_text() == "precious"
