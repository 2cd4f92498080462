"""Certificates of a server inside a cluster: an authority of its own, and a key pair for one host name."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

DAYS = 3650
"""Validity in days."""


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """PEM texts."""

    authority: str
    certificate: str
    key: str


def new_certificate(host: str, issuer: str, now: datetime.datetime) -> ServingCertificate:
    """Return a new certificate for ``host``. ``issuer``: common name of the authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)])
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=DAYS))
        )

    issuer_certificate = builder(name, authority.public_key()).add_extension(
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
    return ServingCertificate(
        issuer_certificate.sign(authority, hashes.SHA256()).public_bytes(pem).decode(),
        leaf.sign(authority, hashes.SHA256()).public_bytes(pem).decode(),
        key.private_bytes(pem, form, serialization.NoEncryption()).decode(),
    )
