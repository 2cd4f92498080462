"""What a part of a device takes of its capacities: as asked, within what the device lets be asked (``requestPolicy``).

As kube-scheduler counts it. Who asks for none of a capacity takes its ``default``, else all of it. What is asked is
rounded up to the next of ``validValues``, or of the steps of ``validRange``, and what is beyond them cannot be had.
A device that is one claim's alone has to have what is asked, and is that claim's whole.
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
"""Capacities are counted in billionths, the finest that a quantity can say."""
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
Consumed = tuple[tuple[str, str], ...]
"""Capacity, quantity as text."""


def consumed(asked: Iterable[tuple[str, str]], capacity: Sequence[DeviceCapacity]) -> Consumed | None:
    """What a part takes of each capacity of a device; ``None`` where the device has no such part, whoever has
    something of it."""
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
    """The largest of the parts, in thousandths. ``draws``: name, units, how many there are."""
    return max((min(WHOLE, -(-units * WHOLE // total)) for _, units, total in draws if total), default=0)


@lru_cache(maxsize=4096)
def units(text: str) -> int:
    """What the text says; 0 for what is no quantity."""
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
    """Rounded up, as steps are counted."""
    return ceil(Fraction(units(text), _NANO))


def _binary(number: int) -> str:
    """With the suffix that a quantity in binary units is written with."""
    power = 0
    while number and number % 1024 == 0 and power < len(_BINARY) - 1:
        number, power = number // 1024, power + 1
    return f"{number}{_BINARY[power]}"
