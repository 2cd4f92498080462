"""Credentials of the bind guard: a certificate for its Service, a token for the API server.

They are created once and stored in a Secret, as in the chart (``windlass.guard`` in its
helpers).
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.kits.serving_certificates import new_certificate

MIN_REMAINING_DAYS = 365
"""Minimum remaining validity in days. A certificate that expires earlier is replaced.
"""


@dataclass(frozen=True, slots=True)
class GuardCredentials:
    """Credentials: PEM texts, and a token of letters and digits."""

    authority: str
    certificate: str
    key: str
    token: str

    @property
    def data(self) -> dict[str, str]:
        """Contents of the Secret."""
        texts = {
            "ca.crt": self.authority,
            "tls.crt": self.certificate,
            "tls.key": self.key,
            "token": self.token,
        }
        return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}

    def fill(self, manifest: str) -> str:
        """Return the manifest of the package with the credentials in place of its placeholders."""
        data = self.data
        for name, text in data.items():
            manifest = manifest.replace(f": {name.upper()}\n", f": {text}\n")
        manifest = manifest.replace("/bind/TOKEN", f"/bind/{self.token}")
        return manifest.replace(": MARK\n", f": {hashlib.sha256(data['tls.crt'].encode()).hexdigest()}\n")


def stored_credentials(secret: Mapping[str, Any] | None) -> GuardCredentials | None:
    """Return the credentials in a Secret; ``None`` if there are none."""
    data = (secret or {}).get("data") or {}
    texts = [
        base64.b64decode(data.get(name, "")).decode() for name in ("ca.crt", "tls.crt", "tls.key", "token")
    ]
    return GuardCredentials(*texts) if all(texts) else None


def is_valid_long(proof: GuardCredentials, now: datetime.datetime) -> bool:
    """Return whether the certificate is valid for long enough."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(proof.certificate.encode())
    return certificate.not_valid_after_utc - now > datetime.timedelta(days=MIN_REMAINING_DAYS)


def new_credentials(namespace: str, now: datetime.datetime) -> GuardCredentials:
    """Return new credentials for the Service ``windlass-bind-guard`` in ``namespace``."""
    host = f"windlass-bind-guard.{namespace}.svc"
    found = new_certificate(host, "windlass-bind-guard", now)
    return GuardCredentials(found.authority, found.certificate, found.key, secrets.token_hex(20))
