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


def consumed(requested: Iterable[tuple[str, str]], capacity: Sequence[DeviceCapacity]) -> Consumed | None:
    """Return the consumption of each capacity; ``None`` if even an unused device lacks it."""
    wanted = dict(requested)
    if not wanted.keys() <= {item.name for item in capacity}:
        return None
    rounded = tuple((item.name, _rounded(wanted.get(item.name), item)) for item in capacity)
    fits = all(
        _is_allowed(text, item) and units(text) <= units(item.value)
        for (_, text), item in zip(rounded, capacity, strict=True)
    )
    return rounded if fits else None


def share_of(counters: Iterable[tuple[str, int, int]]) -> int:
    """Return the largest consumed share of a counter, in thousandths.

    ``counters``: per counter its name, the consumed units and the total units.
    """
    return max((min(WHOLE, -(-units * WHOLE // total)) for _, units, total in counters if total), default=0)


@lru_cache(maxsize=4096)
def units(text: str) -> int:
    """Return the quantity in billionths; 0 for a text that is not a quantity."""
    try:
        return ceil(parse(text) * _NANO)
    except QuantityError:
        return 0


def _rounded(requested: str | None, capacity: DeviceCapacity) -> str:
    if requested is None:
        return capacity.default or capacity.value
    if capacity.least:
        return _stepped(requested, capacity)
    return next((value for value in capacity.values if units(requested) <= units(value)), requested)


def _stepped(requested: str, capacity: DeviceCapacity) -> str:
    if units(requested) < units(capacity.least):
        return capacity.least
    if not capacity.step:
        return requested
    least, step = _whole(capacity.least), _whole(capacity.step)
    return _binary(least + -(-(_whole(requested) - least) // step) * step)


def _is_allowed(text: str, capacity: DeviceCapacity) -> bool:
    if capacity.default and units(text) == units(capacity.default):
        return True
    if capacity.least:
        beyond = capacity.most and units(text) > units(capacity.most)
        off = capacity.step and (_whole(text) - _whole(capacity.least)) % _whole(capacity.step)
        return not beyond and not off
    return not capacity.values or units(text) in {units(value) for value in capacity.values}


def _whole(text: str) -> int:
    """Return the quantity rounded up to an integer, the unit of steps."""
    return ceil(Fraction(units(text), _NANO))


def _binary(number: int) -> str:
    """Return the number with the suffix of a quantity in binary units."""
    power = 0
    while number and number % 1024 == 0 and power < len(_BINARY) - 1:
        number, power = number // 1024, power + 1
    return f"{number}{_BINARY[power]}"
