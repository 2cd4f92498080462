"""Consumption of device capacities by a share of a device (``requestPolicy``).

The rules are kube-scheduler's:

* A request without an amount for a capacity consumes its ``default``, else all of it.
* An amount is rounded up to the next of ``validValues`` or step of ``validRange``. An
  amount beyond them cannot be served.
* A device that one claim has alone must have the requested amounts. The claim gets the
  whole device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil

from windlass.api.devices.request import WHOLE
from windlass.api.quantities import QuantityError, parse
from windlass.api.views import DeviceCapacity

_NANO = 10**9
"""Unit of capacities: one billionth, the finest that a quantity can express."""
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
Consumed = tuple[tuple[str, str], ...]
"""Pairs of capacity and quantity, both as text."""


def consumed(asked: Iterable[tuple[str, str]], capacity: Sequence[DeviceCapacity]) -> Consumed | None:
    """Return the consumption of each capacity; ``None`` if even an unused device lacks it."""
    wanted = dict(asked)
    if not wanted.keys() <= {one.name for one in capacity}:
        return None
    found = tuple((one.name, _rounded(wanted.get(one.name), one)) for one in capacity)
    fits = all(
        _is_allowed(text, one) and units(text) <= units(one.value)
        for (_, text), one in zip(found, capacity, strict=True)
    )
    return found if fits else None


def share_of(draws: Iterable[tuple[str, int, int]]) -> int:
    """Return the largest consumed share of a counter, in thousandths.

    ``draws``: per counter its name, the consumed units and the total units.
    """
    return max((min(WHOLE, -(-units * WHOLE // total)) for _, units, total in draws if total), default=0)


@lru_cache(maxsize=4096)
def units(text: str) -> int:
    """Return the quantity in billionths; 0 for a text that is not a quantity."""
    try:
        return ceil(parse(text) * _NANO)
    except QuantityError:
        return 0


def _rounded(asked: str | None, told: DeviceCapacity) -> str:
    if asked is None:
        return told.default or told.value
    if told.least:
        return _stepped(asked, told)
    return next((value for value in told.values if units(asked) <= units(value)), asked)


def _stepped(asked: str, told: DeviceCapacity) -> str:
    if units(asked) < units(told.least):
        return told.least
    if not told.step:
        return asked
    least, step = _whole(told.least), _whole(told.step)
    return _binary(least + -(-(_whole(asked) - least) // step) * step)


def _is_allowed(text: str, told: DeviceCapacity) -> bool:
    if told.default and units(text) == units(told.default):
        return True
    if told.least:
        beyond = told.most and units(text) > units(told.most)
        off = told.step and (_whole(text) - _whole(told.least)) % _whole(told.step)
        return not beyond and not off
    return not told.values or units(text) in {units(value) for value in told.values}


def _whole(text: str) -> int:
    """Return the quantity rounded up to an integer, the unit of steps."""
    return ceil(Fraction(units(text), _NANO))


def _binary(number: int) -> str:
    """Return the number with the suffix of a quantity in binary units."""
    power = 0
    while number and number % 1024 == 0 and power < len(_BINARY) - 1:
        number, power = number // 1024, power + 1
    return f"{number}{_BINARY[power]}"
