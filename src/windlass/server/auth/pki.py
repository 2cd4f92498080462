"""Certificate authority of the control plane, which signs server and administrator.

Keys use EC P-256, which are generated within a millisecond. Certificates are renewed
before they expire, and if the
machine's name has changed. The authority is valid for ten years. Keys are files of mode
0600, replaced atomically.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
import socket
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from windlass.api.errors import WindlassError
from windlass.api.service_network import API_HOSTS, KUBERNETES_ADDRESS
from windlass.kits.clock import Clock
from windlass.kits.files import write_atomic
from windlass.kits.state import StateFolder
from windlass.server.request.users import ADMIN, MASTERS

UNUSABLE = "WL-PKI-500"
_CA_DAYS = 3650
_LEAF_DAYS = 365
_RENEW_DAYS = 30
_BACKDATE = datetime.timedelta(hours=1)
"""Tolerance for clocks that are set back: start of validity before the time of issue."""
_TOKEN_BYTES = 32


def ensure(state: StateFolder, clock: Clock) -> None:
    """Create what is missing in ``state.pki``, renew expiring certificates, create the token.

    Raises :class:`WindlassError` if files cannot be read or written.
    """
    try:
        state.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = datetime.datetime.fromtimestamp(clock.now(), datetime.UTC)
        authority = _Authority.load(state, now) or _Authority.make(state, now)
        names = ["localhost", socket.gethostname(), *API_HOSTS]
        if not authority.signed(state.server_cert, state.server_key, now, names):
            authority.issue_server(state.server_cert, state.server_key, now, names)
        if not authority.signed(state.admin_cert, state.admin_key, now, []):
            authority.issue_client(state.admin_cert, state.admin_key, now, ADMIN.name, [MASTERS])
        if not _has_text(state.token):
            write_atomic(state.token, secrets.token_urlsafe(_TOKEN_BYTES) + "\n", 0o600)
    except (OSError, ValueError) as error:
        raise WindlassError(
            UNUSABLE,
            f"the certificates in {state.pki} cannot be used",
            evidence=str(error),
            remedies=(
                f"ls -l {state.pki}",
                f"create new ones: mv {state.pki} {state.pki}.old, then windlass up",
            ),
        ) from error


def read_token(state: StateFolder) -> str:
    return state.token.read_text().strip()


def _has_text(path: Path) -> bool:
    try:
        return bool(path.read_text().strip())
    except FileNotFoundError:
        return False


class _Authority:
    """Certificate authority: its key and certificate."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @staticmethod
    def load(state: StateFolder, now: datetime.datetime) -> _Authority | None:
        """Return the stored authority; ``None`` if it is missing or about to expire."""
        try:
            certificate = x509.load_pem_x509_certificate(state.ca_cert.read_bytes())
            key = serialization.load_pem_private_key(state.ca_key.read_bytes(), None)
        except FileNotFoundError:
            return None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ValueError(f"{state.ca_key} does not belong to {state.ca_cert}")
        return _Authority(certificate, key) if _lasts(certificate, now) else None

    @staticmethod
    def make(state: StateFolder, now: datetime.datetime) -> _Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "windlass-ca")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = (
            _builder(name, name, key.public_key(), now, _CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(state.ca_cert, state.ca_key, certificate, key)
        return _Authority(certificate, key)

    def signed(self, path: Path, key_path: Path, now: datetime.datetime, names: list[str]) -> bool:
        """Return whether a valid certificate at ``path`` covers all ``names``."""
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            key = serialization.load_pem_private_key(key_path.read_bytes(), None)
            certificate.verify_directly_issued_by(self._certificate)
        except (FileNotFoundError, ValueError, TypeError, InvalidSignature):
            return False
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            return False
        if not _lasts(certificate, now):
            return False
        if not names:
            return True
        try:
            present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return False
        return set(names) <= set(present.get_values_for_type(x509.DNSName))

    def issue_server(self, path: Path, key_path: Path, now: datetime.datetime, names: list[str]) -> None:
        addresses = [ipaddress.ip_address(one) for one in ("127.0.0.1", "::1", KUBERNETES_ADDRESS)]
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in dict.fromkeys(names)]
        alternatives += [x509.IPAddress(address) for address in addresses]
        self._issue(
            path,
            key_path,
            now,
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "windlass-server")]),
            ExtendedKeyUsageOID.SERVER_AUTH,
            x509.SubjectAlternativeName(alternatives),
        )

    def issue_client(
        self, path: Path, key_path: Path, now: datetime.datetime, user: str, groups: list[str]
    ) -> None:
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        self._issue(path, key_path, now, x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        path: Path,
        key_path: Path,
        now: datetime.datetime,
        subject: x509.Name,
        purpose: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), now, _LEAF_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        _write(path, key_path, builder.sign(self._key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _lasts(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    end = certificate.not_valid_after_utc - datetime.timedelta(days=_RENEW_DAYS)
    return certificate.not_valid_before_utc <= now < end


def _write(
    path: Path, key_path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_atomic(key_path, private, 0o600)
    write_atomic(path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
