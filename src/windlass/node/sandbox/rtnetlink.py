"""Network links by raw rtnetlink, without iproute2.

A netlink socket stays in the network namespace in which it was opened. A pod's sandbox opens one
before and one after ``unshare`` and so controls both ends of its veth pair.
Wire format: linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/veth.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

_NEWLINK, _DELLINK, _GETLINK, _NEWADDR, _NEWROUTE = 16, 17, 18, 20, 24
_ERROR = 2
_REQUEST, _ACK, _EXCL, _CREATE = 0x1, 0x4, 0x200, 0x400
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_PID = 1, 3, 4, 10, 18, 19
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST = 1, 2, 4
_RTA_DST, _RTA_GATEWAY, _RTA_OIF = 1, 5, 4
_UP = 1


def _attribute(kind: int, payload: bytes) -> bytes:
    length = 4 + len(payload)
    return struct.pack("=HH", length, kind) + payload + b"\0" * (-length % 4)


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _number(kind: int, number: int) -> bytes:
    return _attribute(kind, struct.pack("=I", number))


class Netlink:
    """Connection to the routing family of the network namespace in which it is opened."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.bind((0, 0))
        self._sequence = 0
        self._indices: dict[str, int] = {}

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _request(self, kind: int, flags: int, body: bytes, what: str) -> bytes:
        self._sequence += 1
        header = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, self._sequence, 0)
        self._socket.send(header + body)
        response = self._socket.recv(65536)
        while response:
            length, kind_back, _, sequence, _ = struct.unpack_from("=IHHII", response)
            if sequence == self._sequence:
                if kind_back == _ERROR:
                    code = struct.unpack_from("=i", response, 16)[0]
                    if code:
                        raise OSError(-code, f"{what}: {os.strerror(-code)}")
                return response[16:length]
            response = response[(length + 3) & ~3 :] or self._socket.recv(65536)
        raise OSError(errno.EIO, f"{what}: no response")

    @staticmethod
    def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
        return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, change)

    def index(self, name: str) -> int:
        """Return the index of the interface. Raises ``OSError`` (ENODEV) if it does not exist.

        A known index is not looked up again: the kernel answers with 1.5 KiB of statistics.
        """
        if name not in self._indices:
            response = self._request(
                _GETLINK, 0, self._link() + _text(_IFLA_IFNAME, name), f"look for link {name}"
            )
            self._indices[name] = struct.unpack_from("=i", response, 4)[0]
        return self._indices[name]

    def exists(self, name: str) -> bool:
        self._indices.pop(name, None)
        try:
            self.index(name)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return False
            raise
        return True

    def add_bridge(self, name: str, hardware_address: bytes = b"") -> None:
        """Add a bridge.

        Without a ``hardware_address`` its address is the lowest one of its ports. It
        changes when pods start and end, and pods then send to an address that nothing has.
        """
        info = _attribute(_IFLA_LINKINFO, _text(_INFO_KIND, "bridge"))
        body = self._link() + _text(_IFLA_IFNAME, name) + info
        if hardware_address:
            body += _attribute(_IFLA_ADDRESS, hardware_address)
        self._request(_NEWLINK, _CREATE | _EXCL | _ACK, body, f"add bridge {name}")

    def add_veth(self, name: str, peer: str, peer_pid: int, bridge: str | None = None) -> None:
        """Add a veth pair: ``name`` here (a port of ``bridge``), ``peer`` in the namespace of ``peer_pid``."""
        other = self._link() + _text(_IFLA_IFNAME, peer) + _number(_IFLA_NET_NS_PID, peer_pid)
        data = _attribute(_INFO_DATA, _attribute(_VETH_PEER, other))
        info = _attribute(_IFLA_LINKINFO, _text(_INFO_KIND, "veth") + data)
        body = self._link(0, _UP, _UP) + _text(_IFLA_IFNAME, name) + info
        if bridge is not None:
            body += _number(_IFLA_MASTER, self.index(bridge))
        self._request(_NEWLINK, _CREATE | _EXCL | _ACK, body, f"add veth {name}")

    def delete_link(self, name: str) -> None:
        self._indices.pop(name, None)
        self._request(_DELLINK, _ACK, self._link() + _text(_IFLA_IFNAME, name), f"delete link {name}")

    def up(self, name: str, *, master: str | None = None) -> None:
        body = self._link(self.index(name), _UP, _UP)
        if master is not None:
            body += _number(_IFLA_MASTER, self.index(master))
        self._request(_NEWLINK, _ACK, body, f"bring {name} up")

    def add_address(self, name: str, address: str, prefix: int) -> None:
        raw = socket.inet_aton(address)
        mask = (1 << (32 - prefix)) - 1
        broadcast = struct.pack(">I", struct.unpack(">I", raw)[0] | mask)
        body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, self.index(name))
        body += _attribute(_IFA_LOCAL, raw) + _attribute(_IFA_ADDRESS, raw)
        if prefix < 31:
            body += _attribute(_IFA_BROADCAST, broadcast)
        self._request(_NEWADDR, _CREATE | _EXCL | _ACK, body, f"give {name} the address {address}/{prefix}")

    def add_default_route(self, name: str, gateway: str) -> None:
        # family, dst_len, src_len, tos, table main, protocol boot, scope universe, type unicast, flags
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0)
        body += _attribute(_RTA_GATEWAY, socket.inet_aton(gateway)) + _number(_RTA_OIF, self.index(name))
        self._request(_NEWROUTE, _CREATE | _EXCL | _ACK, body, f"route through {gateway}")

    def add_link_route(self, name: str, network: str, prefix: int) -> None:
        """Add a route to a network that is reached on the link of the interface."""
        # table main, protocol boot, scope link, type unicast
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, prefix, 0, 0, 254, 3, 253, 1, 0)
        body += _attribute(_RTA_DST, socket.inet_aton(network)) + _number(_RTA_OIF, self.index(name))
        self._request(_NEWROUTE, _CREATE | _EXCL | _ACK, body, f"route {network}/{prefix} by {name}")

    def add_local_route(self, network: str, prefix: int) -> None:
        """Make all addresses of the network local to this network namespace."""
        # table local, protocol boot, scope host, type local
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, prefix, 0, 0, 255, 3, 254, 2, 0)
        body += _attribute(_RTA_DST, socket.inet_aton(network)) + _number(_RTA_OIF, self.index("lo"))
        self._request(_NEWROUTE, _CREATE | _EXCL | _ACK, body, f"make {network}/{prefix} local")
