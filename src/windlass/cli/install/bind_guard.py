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

DAYS = 3650
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
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    host = f"windlass-bind-guard.{namespace}.svc"
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "windlass-bind-guard")])
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=DAYS))
        )

    issuer_certificate = builder(issuer, authority.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    # The subject differs from the issuer, as the certificate would look self-signed.
    leaf = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])]), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return GuardCredentials(
        issuer_certificate.sign(authority, hashes.SHA256()).public_bytes(pem).decode(),
        leaf.sign(authority, hashes.SHA256()).public_bytes(pem).decode(),
        key.private_bytes(pem, form, serialization.NoEncryption()).decode(),
        secrets.token_hex(20),
    )
