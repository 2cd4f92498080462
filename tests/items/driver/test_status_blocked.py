"""Status of a driver that cannot store rows."""

from __future__ import annotations

from windlass.items.driver.status import tell_blocked
from windlass.items.places import PlaceError


def test_blocked_driver_tells_neither_rate_nor_time_left():
    status = {"items": {"total": 10, "done": 4, "perSecond": 25.0, "etaSeconds": 3}}
    tell_blocked(status, PlaceError("DiskFull", "the disk of /out is full"))
    assert status == {
        "items": {"total": 10, "done": 4, "perSecond": 0.0},
        "blocked": {"reason": "DiskFull", "message": "the disk of /out is full"},
    }
