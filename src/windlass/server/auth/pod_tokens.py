"""Tokens of service accounts that are bound to a pod (JSON Web Tokens, HS256).

The key follows from the administrator's token. A new administrator's token therefore
ends all of them. They give two rights: to report the progress of the pod's job
(:mod:`windlass.server.verbs.progress`), and to the autoscaler of Ray to change its
RayCluster (:mod:`windlass.server.pod_rights`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.kits.clock import Clock
from windlass.server.request.users import AUTHENTICATED, UserInfo

ISSUER = "https://kubernetes.default.svc"
DEFAULT_AUDIENCE = ISSUER
DEFAULT_SECONDS = 3600
"""Default lifetime of a token in seconds."""
MIN_SECONDS = 600
"""Minimum lifetime of a token in seconds, as in Kubernetes."""
_HEADER = {"alg": "HS256", "typ": "JWT"}


class PodTokens:
    """Issues tokens, and recognises them."""

    def __init__(self, secret: str, clock: Clock) -> None:
        self._key = hmac.digest(secret.encode(), b"windlass service account tokens", hashlib.sha256)
        self._clock = clock

    def issue(
        self, namespace: str, account: str, audiences: Sequence[str], seconds: int, pod: dict[str, str] | None
    ) -> tuple[str, float]:
        """Return a token and its expiry in Unix seconds. ``pod``: name and uid of the bound pod."""
        now = self._clock.now()
        private: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": account}}
        if pod is not None:
            private["pod"] = pod
        claims = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "aud": list(audiences) or [DEFAULT_AUDIENCE],
            "iat": int(now),
            "nbf": int(now),
            "exp": int(now) + seconds,
            "kubernetes.io": private,
        }
        signed = f"{_encoded(_HEADER)}.{_encoded(claims)}"
        return f"{signed}.{_text(self._signature(signed))}", float(claims["exp"])

    def user(self, token: str) -> UserInfo | None:
        """Return the user of a token; ``None`` if it is not valid."""
        signed, _, signature = token.rpartition(".")
        if signed.count(".") != 1 or not hmac.compare_digest(_text(self._signature(signed)), signature):
            return None
        claims = _decoded(signed.partition(".")[2])
        if claims is None or not float(claims.get("exp") or 0) > self._clock.now():
            return None
        private = claims.get("kubernetes.io") or {}
        namespace = str(private.get("namespace") or "")
        pod = private.get("pod") or {}
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        return UserInfo(
            str(claims.get("sub") or ""),
            "",
            groups,
            pod=f"{namespace}/{pod['name']}/{pod['uid']}" if pod else "",
            audiences=tuple(claims.get("aud") or ()),
        )

    def _signature(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(), hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encoded(value: Any) -> str:
    return _text(msgspec.json.encode(value))


def _decoded(text: str) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, msgspec.DecodeError):
        return None
    return found if isinstance(found, dict) else None
