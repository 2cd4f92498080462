"""RSA key pairs for SSH."""

from __future__ import annotations

from dataclasses import dataclass

KEY_BITS = 2048


@dataclass(frozen=True, slots=True)
class SshKeyPair:
    """``private``: PEM (PKCS #1). ``public``: one line of ``authorized_keys``."""

    private: str
    public: str


def generate() -> SshKeyPair:
    """Return a new key pair. Takes about a tenth of a second of CPU time."""
    # Imported here: the package costs 50 ms, and most processes generate no key.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return SshKeyPair(private.decode(), public.decode() + "\n")
