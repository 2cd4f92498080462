"""User of a request, as authentication passes it to authorization and admission."""

from __future__ import annotations

from dataclasses import dataclass

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """User: name, stable id, and groups that permissions are granted to.

    ``pod``: ``namespace/name/uid`` of the pod that the user's token is bound to.
    ``audiences``: of that token.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    pod: str = ""
    audiences: tuple[str, ...] = ()

    @property
    def is_admin(self) -> bool:
        return MASTERS in self.groups


ADMIN = UserInfo("windlass-admin", "windlass-admin", (MASTERS, AUTHENTICATED))
ANONYMOUS = UserInfo("system:anonymous", "", (UNAUTHENTICATED,))
