"""One announcement of a world to the c10d rendezvous that a TCPStore holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.client import torch_store
from windlass.client.torch_store import TorchStore
from windlass.jobs.rendezvous.announce import announce, read_world
from windlass.jobs.rendezvous.state import NO_STATE, address_field_of, decode_state, encode_state


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Port and run id of a c10d rendezvous."""

    port: int
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class AnnouncementResult:
    """Result of one announcement.

    ``words``: the change; empty if nothing was written.
    ``settled``: the round has exactly the pods of the world.
    """

    words: str = ""
    settled: bool = False


def rendezvous_of(annotations: Mapping[str, str]) -> Rendezvous | None:
    """Return the rendezvous that a pod holds by its annotation; ``None`` if it holds none."""
    port, _, run_id = (annotations.get(names.RENDEZVOUS) or "").partition("/")
    if not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
        return None
    return Rendezvous(int(port), run_id)


def world_of(annotations: Mapping[str, Any]) -> frozenset[int]:
    """Return the announced world of a pod; empty if there is none that can be read."""
    try:
        return read_world(annotations.get(names.WORLD) or "")
    except ValueError:
        return frozenset()


async def announce_once(
    store: TorchStore, rendezvous: Rendezvous, world: Collection[int]
) -> AnnouncementResult:
    """Read the state of the rendezvous, and write what ``world`` changes in it.

    Raises ``OSError`` if the store is lost, ``RendezvousStateError`` if its state cannot be read. A
    write that loses against an agent counts as no write: try again.
    """
    key = torch_store.state_key(rendezvous.run_id)
    value = await store.get(key) if world else None
    if value is None or value == NO_STATE:
        return AnnouncementResult()
    stored = torch_store.from_value(value)
    found = announce(decode_state(stored), world)
    if found.state is None:
        return AnnouncementResult(settled=found.settled)
    desired = torch_store.to_value(encode_state(found.state, address_field_of(stored)))
    if await store.compare_set(key, value, desired) != desired:
        return AnnouncementResult()
    return AnnouncementResult(found.words, found.settled)
