"""Outbound traffic of pods with a network of their own.

There are three ways, in this order:

1. NAT by the machine itself (root, with nft or iptables).
2. slirp4netns. Its tap is attached to the bridge, so that every pod has it as gateway and name
   server.
3. None. The note says how to get it.

The helper survives the agent, which finds it again by ``outbound.json``. It ends with the holder of
the pod network.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.kits.files import unlink_if_exists
from windlass.kits.run_command import capture
from windlass.node.runtime import attempt_files
from windlass.node.runtime.helpers import read_to_end, start_helper, track, wait_exit
from windlass.node.sandbox.network_namespace import TAP

RECORD = "outbound.json"
_READY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Outbound:
    """Way of outbound traffic.

    ``kind``: ``machine`` (no own network), ``nat``, ``slirp4netns`` or ``none``.
    """

    kind: str
    note: str
    gateway: str = ""
    nameserver: str = ""


def none(note: str) -> Outbound:
    return Outbound("none", note)


async def ensure(
    directory: Path, holder: dict[str, Any], network: ipaddress.IPv4Network, uplink: str
) -> Outbound:
    """Set up outbound traffic for the network of ``holder``, or return the existing way."""
    if uplink and (tool := shutil.which("nft") or shutil.which("iptables")):
        try:
            return _nat(tool, network, uplink)
        except OSError as error:
            refused = f"NAT is refused: {error}"
    else:
        refused = "NAT needs nft or iptables" if uplink else "NAT needs root"
    program = shutil.which("slirp4netns")
    if program is None:
        return none(f"{refused}; slirp4netns is not installed (Debian, Ubuntu, Fedora: package slirp4netns)")
    record = attempt_files.read(str(directory), RECORD)
    if not (attempt_files.is_running(record) and record and record.get("box") == holder["pid"]):
        await stop(directory)
        why = await _start_slirp(program, directory, holder, network)
        if why:
            return none(f"{refused}; slirp4netns failed: {why}")
    return Outbound(
        "slirp4netns",
        f"{refused}; slirp4netns (TCP and UDP, no ping)",
        gateway=str(network.network_address + 2),
        nameserver=str(network.network_address + 3),
    )


def _nat(tool: str, network: ipaddress.IPv4Network, uplink: str) -> Outbound:
    """Masquerade the pods' range. Changes ``net.ipv4.ip_forward``, as every container engine does."""
    for argv in nat_commands(tool, network, uplink):
        done = capture(argv, timeout_seconds=10)
        if done.returncode != 0 and "-C" not in argv:
            raise OSError(f"{' '.join(argv)}: {done.stderr.decode(errors='replace').strip()}")
        if done.returncode == 0 and "-C" in argv:
            break  # the rules exist
    forward = Path("/proc/sys/net/ipv4/ip_forward")
    if forward.read_text().strip() != "1":
        forward.write_text("1")
    return Outbound("nat", f"NAT by {os.path.basename(tool)}", gateway=str(network.network_address + 1))


def nat_commands(tool: str, network: ipaddress.IPv4Network, uplink: str) -> list[list[str]]:
    """Return the commands that set up NAT. The first one for iptables checks for existing rules."""
    source = str(network)
    if os.path.basename(tool) == "nft":
        table = f"windlass_{uplink}"
        chain = "{ type nat hook postrouting priority 100 ; }"
        rule = f'ip saddr {source} oifname != "{uplink}" masquerade'
        return [
            [tool, f"add table ip {table}"],
            [tool, f"flush table ip {table}"],
            [tool, f"add chain ip {table} out {chain}"],
            [tool, f"add rule ip {table} out {rule}"],
        ]
    out = ["POSTROUTING", "-s", source, "!", "-o", uplink, "-j", "MASQUERADE"]
    waiting = [tool, "-w", "5"]  # another program may change the rules at the same time
    return [
        [*waiting, "-t", "nat", "-C", *out],
        [*waiting, "-t", "nat", "-A", *out],
        [*waiting, "-I", "FORWARD", "-i", uplink, "-j", "ACCEPT"],
        [*waiting, "-I", "FORWARD", "-o", uplink, "-j", "ACCEPT"],
    ]


def remove_nat(network: ipaddress.IPv4Network, uplink: str) -> None:
    """Remove the rules of :func:`nat_commands`. Missing rules are not an error."""
    tool = shutil.which("nft") or shutil.which("iptables")
    if tool is None:
        return
    if os.path.basename(tool) == "nft":
        capture([tool, f"delete table ip windlass_{uplink}"], timeout_seconds=10)
        return
    _, *added = nat_commands(tool, network, uplink)
    for argv in added:
        capture([{"-A": "-D", "-I": "-D"}.get(word, word) for word in argv], timeout_seconds=10)


async def _start_slirp(
    program: str, directory: Path, holder: dict[str, Any], network: ipaddress.IPv4Network
) -> str:
    """Start slirp4netns and attach its tap to the bridge. Return the error, or an empty text."""
    try:
        holder_gone = _until_holder_ends(holder)
    except OSError as error:
        return f"the holder of the pod network cannot be watched: {error}"
    ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
    argv = [
        program,
        f"--cidr={network}",
        "--mtu=1500",
        "--disable-host-loopback",
        "--ready-fd=3",
        "--exit-fd=4",
        "--netns-type=path",
    ]
    if holder["user_namespace"]:
        argv.append(f"--userns-path=/proc/{holder['pid']}/ns/user")
    argv += [f"/proc/{holder['pid']}/ns/net", TAP]
    errors = directory / "slirp4netns.err"
    try:
        pid = os.posix_spawn(
            program,
            argv,
            {"PATH": os.environ.get("PATH", os.defpath)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(errors), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                (os.POSIX_SPAWN_DUP2, ready_write, 3),
                (os.POSIX_SPAWN_DUP2, holder_gone, 4),
            ],
            setsid=True,
            setsigmask=(),
        )
    except OSError as error:
        os.close(ready_read)
        return f"it cannot be started: {error}"
    finally:
        os.close(ready_write)
        os.close(holder_gone)
    track(pid)
    identity = attempt_files.identity(pid)
    try:
        async with asyncio.timeout(_READY_SECONDS):
            response = await read_first_byte(ready_read)
    except TimeoutError:
        response = b""
    if response != b"1":
        os.kill(pid, signal.SIGKILL)
        await wait_exit(pid, identity["start_time"])
        return _error_text(errors)
    attempt_files.write(str(directory), RECORD, {**identity, "box": holder["pid"]})
    helper, reader = start_helper("windlass.node.sandbox.slirp_attach", str(directory))
    response = await read_to_end(reader)
    await wait_exit(helper, attempt_files.identity(helper)["start_time"])
    return "" if response == b"s" else response.decode(errors="replace")


def _until_holder_ends(holder: dict[str, Any]) -> int:
    """Return a descriptor that hangs up when the holder is gone.

    It is the read end of the holder's own pipe. Its number is above those of slirp4netns, so that
    passing one descriptor does not overwrite another.
    """
    path = f"/proc/{holder['pid']}/fd/{holder.get('exit_descriptor', -1)}"
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(opened)


async def read_first_byte(descriptor: int) -> bytes:
    """Return one byte, or nothing if the pipe closes. slirp4netns keeps its pipe open."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
        return os.read(descriptor, 1)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _error_text(path: Path) -> str:
    try:
        text = " ".join(path.read_text(errors="replace").split())
    except OSError:
        text = ""
    return text[:200] or "it ended without an error message"


async def stop(directory: Path) -> None:
    """End the outbound helper of this agent, if there is one."""
    record = attempt_files.read(str(directory), RECORD)
    unlink_if_exists(directory / RECORD)
    if record is not None and attempt_files.signal(record, signal.SIGTERM):
        await wait_exit(record["pid"], record["start_time"])
