"""Who a connection or request belongs to: a client certificate, a bearer token, or the Unix socket.

The certificate is read once per connection, the token per request. A token that is wrong is refused
(401) unless the certificate already says who it is; no credentials at all make the anonymous user.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import StatusError, failure
from windlass.server.request.users import ADMIN, ANONYMOUS, AUTHENTICATED, UserInfo


def unauthorized() -> StatusError:
    return failure(401, "Unauthorized", "Unauthorized")


def user_of_certificate(certificate: Mapping[str, Any] | None) -> UserInfo | None:
    """Name and groups in a verified certificate (as ``ssl.SSLSocket.getpeercert`` gives it)."""
    if not certificate:
        return None
    name, groups = "", []
    for relative in certificate.get("subject", ()):
        for key, value in relative:
            if key == "commonName":
                name = value
            elif key == "organizationName":
                groups.append(value)
    return UserInfo(name, "", (*groups, AUTHENTICATED)) if name else None


class Authenticator:
    """Knows the administrator's token."""

    def __init__(self, token: str) -> None:
        if not token:
            raise ValueError("an empty token would let everybody in")
        self._token = token.encode()

    def user(self, connection: UserInfo | None, authorization: str | None) -> UserInfo:
        """``connection``: who the connection itself belongs to. Raises 401."""
        if connection is not None:
            return connection
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return ANONYMOUS
        if hmac.compare_digest(token.strip().encode(), self._token):
            return ADMIN
        raise unauthorized()
