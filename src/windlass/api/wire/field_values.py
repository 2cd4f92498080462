"""The canonical text of quantities, times and base64, and Go's words when there is none."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

from windlass.api import quantities

FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_WRONG = "unable to parse quantity's suffix"
NUMBER_WRONG = "unable to parse numeric part of quantity"

_SHAPE = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_TIME = re.compile(r"[0-9]{4}-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]Z")
_ZONED = re.compile(
    r"[0-9]{4}-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9](\.[0-9]+)?(Z|[+-][0-9][0-9]:[0-9][0-9])"
)
_MICRO = re.compile(
    r"[0-9]{4}-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\.[0-9]{6}(Z|[+-][0-9][0-9]:[0-9][0-9])"
)
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_EXPONENTS = {suffix: exponent for exponent, suffix in _DECIMAL.items()}
_FAST_DIGITS = 18
_INTEGER_END = 2.0**63
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_LAYOUTS = {False: "2006-01-02T15:04:05Z07:00", True: "2006-01-02T15:04:05.000000Z07:00"}


@lru_cache(maxsize=8192)
def canonical_quantity(value: str | int | float, *, milli: bool = False) -> str:
    """As ``resource.Quantity`` writes it: ``1000m`` → ``1``, ``0.5`` → ``500m``, ``1024Mi`` → ``1Gi``.

    ``milli``: rounded up to thousandths, as in every ResourceList. Source: ``ParseQuantity`` and
    ``Quantity.CanonicalizeBytes`` of apimachinery. Raises ``ValueError`` with Go's words.
    """
    text = str(value)
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise ValueError(FORMAT_WRONG)
    try:
        exact = quantities.parse(text)
    except quantities.QuantityError:
        number = shape[1].lstrip("+-")
        bad_number = number.count(".") > 1 or not number.strip(".")
        raise ValueError(NUMBER_WRONG if bad_number else SUFFIX_WRONG) from None
    rounded = _round_up(exact, 1000 if milli else 10**9)
    if not rounded:
        return "0"
    suffix = shape[2]
    if rounded == exact and _kept_as_written(shape[1], suffix):
        return text
    if suffix.endswith("i") and abs(rounded) >= 1024 and rounded.denominator == 1:
        return _binary(int(rounded))
    exponential = suffix[:1] in ("e", "E") and len(suffix) > 1
    return _decimal(rounded, exponential=exponential)


def _kept_as_written(digits: str, suffix: str) -> bool:
    """Go keeps the text of what it takes for canonical, such as ``5.`` or ``+1`` (``ParseQuantity``)."""
    whole, _, fraction = digits.lstrip("+-").partition(".")
    shifted = (whole.lstrip("0") or "0") + fraction
    if len(shifted) > _FAST_DIGITS:
        return False
    if suffix.endswith("i"):
        power = _BINARY.index(suffix) * 10
        room = 15 - len(shifted) - int(power * 3 / 10) - 1
        return not fraction and room >= 0 and bool(int(shifted) & 7)
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        exponent = int(suffix[1:])
    else:
        exponent = _EXPONENTS[suffix]
    return (exponent - len(fraction)) % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"


def _round_up(exact: Fraction, parts: int) -> Fraction:
    """Away from zero, to whole parts of one."""
    scaled = exact * parts
    if scaled.denominator == 1:
        return exact
    away = -((-abs(scaled.numerator)) // scaled.denominator)
    return Fraction(away if exact > 0 else -away, parts)


def _decimal(exact: Fraction, *, exponential: bool) -> str:
    exponent = -9
    number = int(exact * 10**9)
    while number % 1000 == 0 and exponent < 18:
        number //= 1000
        exponent += 3
    if exponential:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL[exponent]}"


def _binary(number: int) -> str:
    step = 0
    while number % 1024 == 0 and step < 6:
        number //= 1024
        step += 1
    return f"{number}{_BINARY[step]}"


@lru_cache(maxsize=1024)
def canonical_time(text: str, *, micro: bool = False) -> str:
    """RFC 3339 in UTC, whole seconds or six digits. Raises ``ValueError`` in Go's words."""
    if not micro and _TIME.fullmatch(text) and _moment(text):
        return text
    good = (_MICRO if micro else _ZONED).fullmatch(text)
    moment = _moment(text) if good else None
    if moment is None:
        raise ValueError(_time_words(text, micro=micro))
    moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _moment(text: str) -> datetime | None:
    head, dot, rest = text.partition(".")
    if dot:  # datetime takes at most six digits of a fraction
        digits = re.match(r"[0-9]+", rest)[0]  # type: ignore[index]
        text = f"{head}.{digits[:6].ljust(6, '0')}{rest[len(digits) :]}"
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _time_words(text: str, *, micro: bool) -> str:
    layout = _LAYOUTS[micro]
    parts = (
        (r"[0-9]{4}", "2006"),
        ("-", "-"),
        (r"[0-9][0-9]", "01"),
        ("-", "-"),
        (r"[0-9][0-9]", "02"),
        ("T", "T"),
        (r"[0-9][0-9]", "15"),
        (":", ":"),
        (r"[0-9][0-9]", "04"),
        (":", ":"),
        (r"[0-9][0-9]", "05"),
    )
    rest = text
    for pattern, element in parts:
        match = re.match(pattern, rest)
        if match is None:
            return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{element}"'
        rest = rest[match.end() :]
    if micro and not re.match(r"\.[0-9]{6}", rest):
        return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as ".000000"'
    rest = re.sub(r"^\.[0-9]+", "", rest)
    if re.fullmatch(r"Z|[+-][0-9][0-9]:[0-9][0-9]", rest):
        return f'parsing time "{text}": day or hour out of range'
    return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "Z07:00"'


def whole_numbers(value: Any) -> Any:
    """Return JSON data in which whole floating-point numbers are integers; modified in place.

    Go writes the float64 2 as ``2``. A custom kind with 2.0 is therefore read back as 2 from a
    real server, also in fields that its schema does not describe.
    """
    if isinstance(value, float):
        return _whole(value)
    pending = [value]
    while pending:
        inner = pending.pop()
        if isinstance(inner, dict):
            pairs: Iterable[tuple[Any, Any]] = inner.items()
        elif isinstance(inner, list):
            pairs = enumerate(inner)
        else:
            continue
        for key, item in pairs:
            found = type(item)
            if found is float:
                inner[key] = _whole(item)  # no key is added, so the iteration stays valid
            elif found is dict or found is list:
                pending.append(item)
    return value


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() and -_INTEGER_END <= number < _INTEGER_END else number


_ALPHABET = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def check_base64(text: str) -> None:
    """Raise ``ValueError`` in Go's words unless ``text`` is standard base64 (line breaks are let pass)."""
    compact = text.replace("\n", "").replace("\r", "")
    match = _ALPHABET.match(compact)
    end = match.end() if match else 0
    if end != len(compact):
        raise ValueError(f"illegal base64 data at input byte {end}")
    try:
        base64.b64decode(compact, validate=True)
    except binascii.Error:
        raise ValueError(f"illegal base64 data at input byte {len(compact) // 4 * 4}") from None
