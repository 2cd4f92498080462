"""TLS socket of the blocking client, which closes its descriptor whenever wrapping fails.

``SSLContext.wrap_socket`` takes the descriptor from the given socket. If the peer has
reset the connection by then, it reads from the socket to learn more. The resulting
exception leaves the new socket open, without an owner that could close it.
"""

from __future__ import annotations

import errno
import os
import ssl
from typing import Any


class ClientSocket(ssl.SSLSocket):
    """Socket class for ``SSLContext.sslsocket_class``, for sockets that are already connected."""

    def getpeername(self) -> Any:
        """Return the peer's address. Closes the socket and raises ``OSError`` if the peer is gone."""
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            if error.errno == errno.ENOTCONN:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from error
            raise
