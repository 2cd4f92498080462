"""A server that resets the connection before TLS begins leaves no descriptor open."""

from __future__ import annotations

import gc
import socket
import struct
import warnings

import pytest
from throwaway_certificates import Authority

from windlass.api.resources import PODS
from windlass.client import errors
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.client.errors import Unreachable


def test_a_reset_before_the_handshake_closes_the_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, connect = server.getsockname(), socket.create_connection

        def connect_and_be_reset(where: tuple[str, int], timeout: float) -> socket.socket:
            made = connect(where, timeout)
            if where != address:
                return made  # another thread's of this process
            peer, _ = server.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            return made

        monkeypatch.setattr(socket, "create_connection", connect_and_be_reset)
        connection = Connection(f"https://127.0.0.1:{address[1]}", ca_data=authority.pem)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with BlockingClient(connection) as client, pytest.raises(Unreachable) as caught:
                client.list(PODS)
            assert caught.value.code == errors.UNREACHABLE
            assert "reset" in str(caught.value).lower()
            del caught
            gc.collect()
    assert not [str(warning.message) for warning in told if issubclass(warning.category, ResourceWarning)]
