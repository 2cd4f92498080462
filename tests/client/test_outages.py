"""When a server serves again that did not."""

from __future__ import annotations

import pytest

from windlass.client.outages import OUTAGE_SECONDS, Outages
from windlass.kits.clock import FakeClock


class Heard:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.outages = Outages(clock)
        self.times = 0

    def call(self) -> None:
        self.times += 1


async def test_the_first_success_after_a_while_of_failures_is_the_end_of_an_outage(
    fake_clock: FakeClock,
) -> None:
    heard = Heard(fake_clock)
    with heard.outages.followed(heard.call):
        heard.outages.failed("PATCH")
        await fake_clock.advance(OUTAGE_SECONDS)
        heard.outages.answered("POST", 503)
        assert heard.times == 0
        heard.outages.answered("DELETE", 200)
        heard.outages.answered("DELETE", 200)
        assert heard.times == 1
    heard.outages.failed("PATCH")
    await fake_clock.advance(OUTAGE_SECONDS)
    heard.outages.failed("PATCH")
    heard.outages.answered("PATCH", 200)
    assert heard.times == 1, "nobody follows any more"


async def test_reading_says_nothing_of_writing(fake_clock: FakeClock) -> None:
    """Without etcd an API server still serves what it has read."""
    heard = Heard(fake_clock)
    with heard.outages.followed(heard.call):
        heard.outages.answered("PATCH", 500)
        await fake_clock.advance(OUTAGE_SECONDS)
        heard.outages.answered("GET", 200)
        heard.outages.answered("PATCH", 500)
        assert heard.times == 0
        heard.outages.answered("PATCH", 201)
        assert heard.times == 1


@pytest.mark.parametrize("status", [201, 409])
async def test_single_failures_among_successes_are_no_outage(fake_clock: FakeClock, status: int) -> None:
    """Nor is one request that fails alone, nor what is refused for its own sake."""
    heard = Heard(fake_clock)
    with heard.outages.followed(heard.call):
        for _ in range(20):
            heard.outages.answered("PATCH", 500 if status == 201 else 409)
            await fake_clock.advance(OUTAGE_SECONDS)
            heard.outages.answered("PATCH", 201)
    assert heard.times == 0
