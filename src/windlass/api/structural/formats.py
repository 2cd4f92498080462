"""Formats of strings that kube-apiserver checks, and the formats that it ignores."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date
from urllib.parse import urlsplit

from windlass.api.wire.field_values import canonical_time

# Patterns are compiled when they are first used (by ``re``, which keeps them): all of them take 20 ms of each start.
_UUID = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DURATION = r"[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))*|0"
_LONG_DURATION = (
    r"(\d+)\s*(ns|us|µs|ms|s|m|h|d|w|nanoseconds?|microseconds?|millis?|milliseconds?|seconds?|minutes?"
    r"|hours?|days?|weeks?)"
)
_HOST = (
    r"([a-zA-Z0-9\u0080-\U0010ffff]([-a-zA-Z0-9\u0080-\U0010ffff]{0,62}[a-zA-Z0-9\u0080-\U0010ffff])?\.)*"
    r"[a-zA-Z0-9\u0080-\U0010ffff]([-a-zA-Z0-9\u0080-\U0010ffff]{0,62}[a-zA-Z0-9\u0080-\U0010ffff])?\.?"
)
_EMAIL = r"[^\s@<>]+@[^\s@<>]+"


def _matching(pattern: str, flags: int = re.IGNORECASE) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text, flags) is not None


def _passes(check: Callable[[str], object]) -> Callable[[str], bool]:
    def passes(text: str) -> bool:
        try:
            check(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return passes


def _isbn(text: str) -> bool:
    digits = text.replace("-", "").replace(" ", "")
    if re.fullmatch(r"\d{9}[\dX]", digits):
        total = sum((10 - i) * (10 if c == "X" else int(c)) for i, c in enumerate(digits))
        return total % 11 == 0
    if re.fullmatch(r"\d{13}", digits):
        return sum(int(c) * (3 if i % 2 else 1) for i, c in enumerate(digits)) % 10 == 0
    return False


def _uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(text) and not text.isspace() and (text.startswith("/") or bool(parts.scheme))


def _long_name(text: str) -> bool:
    return len(text) <= 253 and all(re.fullmatch(_LABEL, part) for part in text.split("."))


_CARD = (
    r"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})"
)
CHECKS: Mapping[str, Callable[[str], bool]] = {
    "bsonobjectid": _matching(r"[0-9a-f]{24}"),
    "uri": _uri,
    "email": lambda text: re.fullmatch(_EMAIL, text) is not None,
    "hostname": lambda text: len(text) <= 255 and re.fullmatch(_HOST, text) is not None,
    "ipv4": _passes(ipaddress.IPv4Address),
    "ipv6": _passes(ipaddress.IPv6Address),
    "cidr": lambda text: "/" in text and _passes(ipaddress.ip_interface)(text),
    "mac": _matching(
        r"([0-9a-f]{2}[:-]){5}([0-9a-f]{2}[:-]){0,2}[0-9a-f]{2}|([0-9a-f]{4}\.){2,3}[0-9a-f]{4}"
    ),
    "uuid": _matching(_UUID % ("[0-9a-f]", "[0-9a-f]")),
    "uuid3": _matching(_UUID % ("3", "[0-9a-f]")),
    "uuid4": _matching(_UUID % ("4", "[89ab]")),
    "uuid5": _matching(_UUID % ("5", "[89ab]")),
    "isbn": _isbn,
    "isbn10": lambda text: len(text.replace("-", "").replace(" ", "")) == 10 and _isbn(text),
    "isbn13": lambda text: len(text.replace("-", "").replace(" ", "")) == 13 and _isbn(text),
    "creditcard": lambda text: re.fullmatch(_CARD, re.sub(r"[^0-9]+", "", text)) is not None,
    "ssn": _matching(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _matching(r"#?([0-9a-f]{3}|[0-9a-f]{6})"),
    "rgbcolor": _matching(r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)"),
    "byte": _passes(lambda text: base64.b64decode(text, validate=True)),
    "password": lambda text: True,
    "date": _passes(date.fromisoformat),
    "duration": lambda text: bool(re.fullmatch(_DURATION, text) or re.fullmatch(_LONG_DURATION, text)),
    "datetime": _passes(canonical_time),
    "k8sshortname": lambda text: re.fullmatch(_LABEL, text) is not None,
    "k8slongname": _long_name,
}
_NUMBERS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def effective(kind: str, name: str) -> str:
    """Return the format that is checked; empty for a format that has no meaning for the type."""
    if kind in _NUMBERS:
        return name if name in _NUMBERS[kind] else ""
    if kind in ("", "string"):
        return name if name.replace("-", "") in CHECKS else ""
    return ""


def holds(name: str, text: str) -> bool:
    """Return whether a string has the format ``name``."""
    return CHECKS[name.replace("-", "")](text)
