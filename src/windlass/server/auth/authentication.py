"""Authentication by client certificate, bearer token or Unix socket.

The certificate is read once per connection, the token once per request. A wrong token
is rejected (401), unless the
connection is authenticated already. Requests without credentials belong to the
anonymous user.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import StatusError, failure
from windlass.server.auth.pod_tokens import PodTokens
from windlass.server.request.users import ADMIN, ANONYMOUS, AUTHENTICATED, UserInfo


def unauthorized() -> StatusError:
    return failure(401, "Unauthorized", "Unauthorized")


def user_of_certificate(certificate: Mapping[str, Any] | None) -> UserInfo | None:
    """Return the user named in a verified certificate.

    ``certificate``: as returned by ``ssl.SSLSocket.getpeercert``.
    """
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
    """Authenticator that knows the administrator's token, and tokens of service accounts."""

    def __init__(self, token: str, service_accounts: PodTokens | None = None) -> None:
        if not token:
            raise ValueError("an empty token would authenticate every request")
        self._token = token.encode()
        self._service_accounts = service_accounts

    def user(self, connection: UserInfo | None, authorization: str | None) -> UserInfo:
        """Return the user of a request. Raises 401.

        ``connection``: user of the connection, if it is authenticated.
        """
        if connection is not None:
            return connection
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return ANONYMOUS
        if hmac.compare_digest(token.strip().encode(), self._token):
            return ADMIN
        found = self._service_accounts.user(token.strip()) if self._service_accounts is not None else None
        if found is not None:
            return found
        raise unauthorized()
