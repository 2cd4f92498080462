"""Error of an address that a process cannot listen on, in the same words for all processes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from windlass.api.errors import WindlassError

PORT = "WL-PORT-409"


def cannot_listen(host: str, port: int, error: OSError, *remedies: str, code: str = PORT) -> WindlassError:
    """Return the error: the address, the cause, and what else can be done.

    ``remedies``: commands or options of the caller that choose another address.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        holder = holder_of(port)
        return WindlassError(
            code,
            f"port {port} is in use",
            evidence=f"{address} is held by {holder or 'a process of another user'}",
            remedies=(*remedies, f"ss -ltnp 'sport = :{port}'"),
        )
    if error.errno == errno.EACCES:
        return WindlassError(
            code,
            f"no permission to listen on port {port}",
            evidence=f"{address}: ports below 1024 belong to root",
            remedies=remedies,
        )
    return WindlassError(
        code, f"cannot listen on {address}", evidence=error.strerror or str(error), remedies=remedies
    )


def holder_of(port: int) -> str:
    """Return ``name (pid N)`` of the process that listens on a port of this machine, if it is visible."""
    inodes = set()
    try:
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
            if table.exists():
                inodes |= _listeners(table, port)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _holds(entry, inodes):
                return f"{(entry / 'comm').read_text().strip()} (pid {entry.name})"
    except OSError:
        return ""
    return ""


def _listeners(table: Path, port: int) -> set[str]:
    """Return the names of the sockets that listen on a port, as links of ``/proc/PID/fd`` have them."""
    rows = (line.split() for line in table.read_text().splitlines()[1:])
    return {
        f"socket:[{fields[9]}]"
        for fields in rows
        if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port
    }


def _holds(process: Path, inodes: set[str]) -> bool:
    try:
        return any(os.readlink(link) in inodes for link in (process / "fd").iterdir())
    except OSError:
        return False
