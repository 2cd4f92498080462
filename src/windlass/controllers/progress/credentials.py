"""Certificate of the progress endpoint, in a Secret that all instances share."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import SECRETS
from windlass.client.client import Client
from windlass.kits.clock import Clock
from windlass.kits.serving_certificates import ServingCertificate, new_certificate

SECRET = "windlass-progress"
MIN_REMAINING_DAYS = 365
"""Minimum remaining validity in days. A certificate that expires earlier is replaced."""
_NAMES = ("ca.crt", "tls.crt", "tls.key")


async def shared_certificate(client: Client, namespace: str, host: str, clock: Clock) -> ServingCertificate:
    """Return the certificate for ``host``; create it if there is none that lasts.

    Raises ``StatusError`` and ``Unreachable``.
    """
    now = datetime.datetime.fromtimestamp(clock.now(), datetime.UTC)
    stored = await client.find(SECRETS, SECRET, namespace)
    found = _read(stored)
    if found is not None and _lasts(found, host, now):
        return found
    if stored is not None:
        await client.delete(SECRETS, SECRET, namespace, uid=stored["metadata"]["uid"])
    made = new_certificate(host, SECRET, now)
    texts = dict(zip(_NAMES, (made.authority, made.certificate, made.key), strict=True))
    data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET},
        "type": "kubernetes.io/tls",
        "data": data,
    }
    try:
        await client.create(SECRETS, body, namespace)
    except StatusError as error:
        if error.code != 409:
            raise
        found = _read(await client.find(SECRETS, SECRET, namespace))  # another instance was first
        if found is None:
            raise
        return found
    return made


def _read(secret: Mapping[str, Any] | None) -> ServingCertificate | None:
    data = (secret or {}).get("data") or {}
    texts = [base64.b64decode(data.get(name, "")).decode() for name in _NAMES]
    return ServingCertificate(*texts) if all(texts) else None


def _lasts(found: ServingCertificate, host: str, now: datetime.datetime) -> bool:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(found.certificate.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    left = certificate.not_valid_after_utc - now
    return host in names.get_values_for_type(x509.DNSName) and left > datetime.timedelta(
        days=MIN_REMAINING_DAYS
    )
