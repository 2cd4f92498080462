"""A throw-away certificate authority for tests."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Pair:
    """PEM bytes."""

    cert: bytes
    key: bytes


def _pem_key(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


class Authority:
    def __init__(self, name: str = "test-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._cert = self._build(self._name, self._key.public_key(), ca=True, server=None).sign(
            self._key, hashes.SHA256()
        )
        self.pem = self._cert.public_bytes(serialization.Encoding.PEM)

    def _build(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        *,
        ca: bool,
        server: tuple[str, ...] | None,
    ) -> x509.CertificateBuilder:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_BEGIN)
            .not_valid_after(_END)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if ca:
            return builder
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if server:
            names: list[x509.GeneralName] = []
            for host in server:
                try:
                    names.append(x509.IPAddress(ipaddress.ip_address(host)))
                except ValueError:
                    names.append(x509.DNSName(host))
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder

    def _issue(self, subject: x509.Name, server: tuple[str, ...] | None) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        cert = self._build(subject, key.public_key(), ca=False, server=server).sign(
            self._key, hashes.SHA256()
        )
        return Pair(cert.public_bytes(serialization.Encoding.PEM), _pem_key(key))

    def server(self, *hosts: str) -> Pair:
        return self._issue(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])]), hosts)

    def client(self, user: str, *groups: str) -> Pair:
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        attributes += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        return self._issue(x509.Name(attributes), None)


def rsa_pair() -> tuple[bytes, bytes]:
    """A private and a public key as PEM (service account tokens)."""
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _pem_key(key), public
