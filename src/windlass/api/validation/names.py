"""Formats of names, labels and ports, with the messages of apimachinery's ``validation`` package.

Every function returns the complaints about one value; none means that it is good.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

_LABEL_FMT = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_FMT = rf"{_LABEL_FMT}(\.{_LABEL_FMT})*"
_QUALIFIED_FMT = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FMT = f"({_QUALIFIED_FMT})?"
_KEY_FMT = "[-._a-zA-Z0-9]+"
_SEARCH_FMT = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"

_LABEL = re.compile(_LABEL_FMT)
_SUBDOMAIN = re.compile(_SUBDOMAIN_FMT)
_QUALIFIED = re.compile(_QUALIFIED_FMT)
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_VALUE = re.compile(_VALUE_FMT)
_KEY = re.compile(_KEY_FMT)
_SEARCH = re.compile(_SEARCH_FMT)
_ENVIRONMENT = re.compile(r"[ -<>-~]+")
_PORT_NAME = re.compile(r"[-a-z0-9]+")

LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
    "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{_LABEL_FMT}')"
)
SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN_FMT}')"
)
_NAME_PART = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_QUALIFIED_FMT}')"
)
VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    f"for validation is '{_VALUE_FMT}')"
)
LABEL_1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
ENVIRONMENT_WORDS = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)
_KEY_WORDS = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    f"'KEY_NAME',  or 'key-name', regex used for validation is '{_KEY_FMT}')"
)
IP_WORDS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
PORT_WORDS = "must be between 1 and 65535, inclusive"
NEGATIVE_WORDS = "must be greater than or equal to 0"

SUBDOMAIN_MAX = 253
LABEL_MAX = 63


@lru_cache(maxsize=4096)
def dns_label(value: str) -> tuple[str, ...]:
    found = []
    if len(value) > LABEL_MAX:
        found.append(f"must be no more than {LABEL_MAX} characters")
    elif not _LABEL.fullmatch(value):
        found.append(LABEL_WORDS)
    return tuple(found)


@lru_cache(maxsize=4096)
def dns_1035_label(value: str) -> tuple[str, ...]:
    """As :func:`dns_label`, with a letter at the beginning: names of kinds and versions."""
    found = []
    if len(value) > LABEL_MAX:
        found.append(f"must be no more than {LABEL_MAX} characters")
    if not _LABEL_1035.fullmatch(value):
        found.append(LABEL_1035_WORDS)
    return tuple(found)


@lru_cache(maxsize=4096)
def dns_subdomain(value: str) -> tuple[str, ...]:
    if len(value) > SUBDOMAIN_MAX:
        return (f"must be no more than {SUBDOMAIN_MAX} characters",)
    return () if _SUBDOMAIN.fullmatch(value) else (SUBDOMAIN_WORDS,)


@lru_cache(maxsize=8192)
def qualified_name(value: str) -> tuple[str, ...]:
    """``example.com/name`` or ``name``: keys of labels, annotations, taints; resource names."""
    parts = value.split("/")
    if len(parts) > 2:
        return (
            f"a valid label key {_NAME_PART} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')",
        )
    found = []
    name = parts[-1]
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            found += [f"prefix part {words}" for words in dns_subdomain(parts[0])]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > LABEL_MAX:
        found.append(f"name part must be no more than {LABEL_MAX} bytes")
    if not _QUALIFIED.fullmatch(name):
        found.append(f"name part {_NAME_PART}")
    return tuple(found)


@lru_cache(maxsize=8192)
def label_value(value: str) -> tuple[str, ...]:
    if len(value) > LABEL_MAX:
        return (f"must be no more than {LABEL_MAX} bytes",)
    return () if _VALUE.fullmatch(value) else (VALUE_WORDS,)


@lru_cache(maxsize=1024)
def environment_name(value: str) -> tuple[str, ...]:
    return () if _ENVIRONMENT.fullmatch(value) else (ENVIRONMENT_WORDS,)


@lru_cache(maxsize=1024)
def config_key(value: str) -> tuple[str, ...]:
    if len(value) > SUBDOMAIN_MAX:
        return (f"must be no more than {SUBDOMAIN_MAX} characters",)
    if not _KEY.fullmatch(value):
        return (_KEY_WORDS,)
    if value in (".", ".."):
        return (f"must not be '{value}'",)
    return ("must not start with '..'",) if value.startswith("..") else ()


@lru_cache(maxsize=256)
def search_domain(value: str) -> tuple[str, ...]:
    text = value.removesuffix(".") if value != "." else ""
    if not text or _SEARCH.fullmatch(text):
        return ()
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and "
        "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        f"'{_SEARCH_FMT}')",
    )


@lru_cache(maxsize=1024)
def port_name(value: str) -> tuple[str, ...]:
    """IANA service names, as container ports bear them."""
    found = []
    if len(value) > 15:
        found.append("must be no more than 15 characters")
    if not _PORT_NAME.fullmatch(value):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    elif not any(character.isalpha() for character in value):
        found.append("must contain at least one letter (a-z)")
    if "--" in value:
        found.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return tuple(found)


def port_number(value: int) -> tuple[str, ...]:
    return () if 1 <= value <= 65535 else (PORT_WORDS,)


@lru_cache(maxsize=1024)
def ip_address(value: str) -> tuple[str, ...]:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return (IP_WORDS,)
    return ()
