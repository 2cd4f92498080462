"""Requests with JSON bodies to an HTTP server, over connections that are kept."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit


class JsonClient:
    """Client of one base URL, for one thread."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.netloc.rpartition("@")[2]
        self._path = parts.path.rstrip("/")
        self._headers = dict(headers)
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request. Return status, headers and body. Raises ``OSError``.

        A request over a kept connection that the server has closed is sent once more.
        """
        data = None if body is None else json.dumps(body).encode()
        kept = self._connection is not None
        try:
            return self._send(method, path, data)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not kept or isinstance(error, TimeoutError):
                raise _as_os_error(error) from None
        try:
            return self._send(method, path, data)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _as_os_error(error) from None

    def _send(self, method: str, path: str, data: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        connection = self._connection
        if connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            connection = self._connection = kind(self._host, timeout=self._timeout)
        headers = {**self._headers, "Content-Type": "application/json"}
        connection.request(method, self._path + path, data, headers)
        response = connection.getresponse()
        answer = response.read()
        names = {name.lower(): value for name, value in response.getheaders()}
        if response.will_close:
            self.close()
        return response.status, names, answer

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _as_os_error(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else ConnectionError(f"{type(error).__name__}: {error}")
