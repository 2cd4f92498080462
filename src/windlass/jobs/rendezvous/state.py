"""State of a c10d rendezvous of ``torchrun``, read and written without PyTorch.

PyTorch keeps the state of ``DynamicRendezvousHandler`` as a pickled object in a
TCPStore. Only the classes of that object are read (:data:`_ALLOWED`), so a hostile
pickle cannot run code. It is written as plain opcodes, since the classes do not exist
here. Attributes of newer versions of PyTorch are kept as they are.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

_MODULE = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
NO_STATE = b"Y2FuaW1hZGFt"
"""Value of the key before the first node has written a state."""
MAX_BYTES = 16 * 1024 * 1024
"""Maximum size of a state."""


class RendezvousStateError(ValueError):
    """Value that is not a rendezvous state."""


@dataclass(frozen=True, slots=True, order=True)
class RendezvousNode:
    """One agent of ``torchrun``. ``fqdn`` begins with the name of its pod."""

    fqdn: str
    pid: int
    local_id: int

    @property
    def pod(self) -> str:
        return self.fqdn.partition(".")[0]


@dataclass(slots=True)
class RendezvousState:
    """Shared state of a rendezvous.

    ``complete``: the current round has closed, and ``participants`` have their ranks.
    ``waiting``: nodes for the next round.
    ``heartbeats``: node → time of its last heartbeat.
    ``others``: further attributes, unchanged.
    """

    round: int = 0
    complete: bool = False
    closed: bool = False
    participants: dict[RendezvousNode, int] = field(default_factory=dict)
    waiting: set[RendezvousNode] = field(default_factory=set)
    heartbeats: dict[RendezvousNode, datetime] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)


class _Bag:
    """Stand-in for an object of PyTorch: it takes any attributes."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)


class _State(_Bag):
    pass


class _Node(_Bag):
    """Node while it is read. It is a key of dictionaries before its attributes are known."""


_ALLOWED: Mapping[tuple[str, str], Any] = {
    (_MODULE, "_RendezvousState"): _State,
    (_MODULE, "_NodeDesc"): _Node,
    ("datetime", "datetime"): datetime,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
    ("builtins", "set"): set,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        found = _ALLOWED.get((module_name, global_name))
        if found is None:
            raise RendezvousStateError(
                f"class {module_name}.{global_name} does not belong to a rendezvous state"
            )
        return found


def decode_state(data: bytes) -> RendezvousState:
    """Read a pickled state. Raises :class:`RendezvousStateError`."""
    if len(data) > MAX_BYTES:
        raise RendezvousStateError(f"the state has {len(data)} bytes, more than {MAX_BYTES}")
    try:
        found = _Unpickler(io.BytesIO(data)).load()
    except RendezvousStateError:
        raise
    except Exception as error:  # a pickle may raise anything
        raise RendezvousStateError(f"the state cannot be read: {error}") from error
    if not isinstance(found, _State):
        raise RendezvousStateError("the value is not a rendezvous state")
    fields = dict(vars(found))
    try:
        return RendezvousState(
            round=int(fields.pop("round")),
            complete=bool(fields.pop("complete")),
            closed=bool(fields.pop("closed")),
            participants={_node(one): int(rank) for one, rank in fields.pop("participants").items()},
            waiting={_node(one) for one in fields.pop("wait_list")},
            heartbeats={_node(one): time for one, time in fields.pop("last_heartbeats").items()},
            others={name: _plain(value) for name, value in fields.items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RendezvousStateError(f"the state lacks a field: {error}") from error


def _node(read: Any) -> RendezvousNode:
    known = vars(read)
    fqdn = known.get("fqdn", known.get("addr"))
    return RendezvousNode(str(fqdn), int(known["pid"]), int(known["local_id"]))


def _plain(value: Any) -> Any:
    """Return a value of another attribute with its nodes as :class:`RendezvousNode`."""
    if isinstance(value, _Node):
        return _node(value)
    if isinstance(value, set | list | tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    return value


def encode_state(state: RendezvousState, address_field: str = "fqdn") -> bytes:
    """Return the state as PyTorch reads it.

    ``address_field``: name of the node's address in this version of PyTorch.
    """
    writer = _Writer(address_field)
    body = {
        **state.others,
        "round": state.round,
        "complete": state.complete,
        "closed": state.closed,
        "participants": state.participants,
        "wait_list": state.waiting,
        "last_heartbeats": state.heartbeats,
    }
    return writer.document(body)


def address_field_of(data: bytes) -> str:
    """Return the name of the node's address in a pickled state: ``addr`` since PyTorch 2.0, or ``fqdn``."""
    return "fqdn" if b"fqdn" in data else "addr"


class _Writer:
    """Writer of the opcodes of pickle protocol 3, as far as a state needs them."""

    def __init__(self, address_field: str) -> None:
        self._address = address_field
        self._kinds: Mapping[type, Callable[[Any], bytes]] = {
            type(None): lambda _: b"N",
            bool: lambda value: b"\x88" if value else b"\x89",
            int: self._int,
            float: lambda value: b"G" + struct.pack(">d", value),
            str: self._text,
            datetime: self._time,
            timedelta: self._span,
            timezone: lambda value: self._call("datetime", "timezone", value.utcoffset(None)),
            dict: self._mapping,
            set: lambda value: self._call("builtins", "set", sorted(value)),
            list: lambda value: b"](" + b"".join(map(self.value, value)) + b"e",
            tuple: lambda value: b"(" + b"".join(map(self.value, value)) + b"t",
            RendezvousNode: self._node,
        }

    def document(self, fields: Mapping[str, Any]) -> bytes:
        body = self._global(_MODULE, "_RendezvousState") + b")\x81" + self._mapping(fields) + b"b"
        return b"\x80\x03" + body + b"."

    def value(self, value: Any) -> bytes:
        write = self._kinds.get(type(value))
        if write is None:
            raise RendezvousStateError(f"a value of type {type(value).__name__} cannot be written")
        return write(value)

    def _global(self, module: str, name: str) -> bytes:
        return f"c{module}\n{name}\n".encode()

    def _call(self, module: str, name: str, *arguments: Any) -> bytes:
        return self._global(module, name) + self.value(arguments) + b"R"

    def _int(self, value: int) -> bytes:
        if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes((len(data),)) + data

    def _text(self, value: str) -> bytes:
        data = value.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(data)) + data

    def _mapping(self, value: Mapping[Any, Any]) -> bytes:
        items = b"".join(self.value(key) + self.value(one) for key, one in value.items())
        return b"}(" + items + b"u"

    def _time(self, value: datetime) -> bytes:
        year = value.year
        data = bytes((year >> 8, year & 255, value.month, value.day, value.hour, value.minute, value.second))
        data += value.microsecond.to_bytes(3, "big")
        arguments = b"(C" + bytes((len(data),)) + data
        if value.tzinfo is not None:
            arguments += self.value(timezone.utc if value.tzinfo is UTC else value.tzinfo)  # noqa: UP017
        return self._global("datetime", "datetime") + arguments + b"tR"

    def _span(self, value: timedelta) -> bytes:
        return self._call("datetime", "timedelta", value.days, value.seconds, value.microseconds)

    def _node(self, value: RendezvousNode) -> bytes:
        fields = {self._address: value.fqdn, "pid": value.pid, "local_id": value.local_id}
        return self._global(_MODULE, "_NodeDesc") + b")\x81" + self._mapping(fields) + b"b"
