"""Delays between the attempts of one request: a bind, its look-up, or a write before it."""

from __future__ import annotations

from windlass.api.errors import StatusError
from windlass.client.errors import Unreachable
from windlass.client.responses import retry_after
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random

OVERLOAD = (429, 503, 504)
"""Status codes of an overloaded server."""
FIRST_RETRY_SECONDS = 0.1
"""Delay in seconds before the second attempt. Each further delay is twice as long."""
MAX_RETRY_SECONDS = 5.0
"""Maximum delay in seconds between two attempts, without jitter."""
_JITTER = 0.5


def new_backoff(rng: Random) -> Backoff:
    """Return the back-off for the attempts of one request."""
    return Backoff(rng, FIRST_RETRY_SECONDS, 2.0, MAX_RETRY_SECONDS, _JITTER)


def requested_pause(error: StatusError | Unreachable) -> float | None:
    """Return the delay in seconds that the server asked for, or ``None``."""
    return retry_after(error) if isinstance(error, StatusError) else None


async def pause(clock: Clock, error: StatusError | Unreachable, backoff: Backoff) -> None:
    """Wait as long as the server asked for, or for the next back-off."""
    requested = requested_pause(error)
    await clock.sleep(backoff.next() if requested is None else requested)
