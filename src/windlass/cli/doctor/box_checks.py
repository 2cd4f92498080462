"""What ``windlass doctor`` looks at. Each check says what it found and, when something is wrong, the remedy."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from windlass.api.errors import StatusError, WindlassError
from windlass.cli.errors import if_served
from windlass.cli.invocation import Invocation
from windlass.client.errors import Unreachable
from windlass.kits.state import NETWORK_FILESYSTEMS, StateError, StateFolder, StateProblem, filesystem_of

OK, WARN, FAIL = "ok", "warn", "fail"
_LITTLE_BYTES = 1 << 30
_SKEW_SECONDS = 5.0
_RENEWED_DAYS = 29
"""A running server renews a certificate of which thirty days are left."""
_RESTART = "windlass down, then windlass up, which makes new ones"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """``level``: ok, warn (works, with less), fail (does not work)."""

    name: str
    level: str
    text: str
    remedy: str = ""

    def as_record(self) -> dict[str, str]:
        return {"check": self.name, "level": self.level, "found": self.text, "remedy": self.remedy}


def all_checks(invocation: Invocation) -> Iterator[CheckResult]:
    """Every check in order; one that cannot be made says so instead of raising."""
    checks: tuple[tuple[str, Callable[[Invocation], CheckResult]], ...] = (
        ("python", _python),
        ("kernel", _kernel),
        ("state folder", _folder),
        ("disk", _disk),
        ("control plane", _control_plane),
        ("certificates", _certificates),
        ("clock", _clock),
        ("port", _port),
        ("open files", _files),
        ("shared memory", _shared_memory),
    )
    for name, check in checks:
        try:
            yield check(invocation)
        except (OSError, ValueError) as error:
            yield CheckResult(name, WARN, f"could not be checked: {error}")
    try:
        yield from queues(invocation)
    except Unreachable:
        pass  # of which the control plane's line tells
    except StatusError as error:
        yield CheckResult("queues", WARN, f"could not be checked: {error}")
    yield from _machine(invocation)


def _python(_: Invocation) -> CheckResult:
    return CheckResult("python", OK, f"{platform.python_version()} ({sys.executable})")


def _kernel(_: Invocation) -> CheckResult:
    system = f"{platform.system()} {platform.release()}"
    if platform.system() != "Linux":
        return CheckResult("kernel", FAIL, system, "the control plane and the agent need Linux")
    if not hasattr(os, "pidfd_open"):
        return CheckResult("kernel", FAIL, system, "Linux 5.3 or newer is needed (pidfd)")
    return CheckResult("kernel", OK, system)


def _folder(invocation: Invocation) -> CheckResult:
    state: StateFolder = invocation.target.state
    place = state.path
    while not place.exists():
        place = place.parent
    kind = filesystem_of(place)
    if kind in NETWORK_FILESYSTEMS:
        return CheckResult(
            "state folder", FAIL, f"{state.path} on {kind}", "use a local disk: windlass up --state DIR"
        )
    if not os.access(place, os.W_OK):
        error = StateError(StateProblem.DENIED, place, "cannot be written")
        return CheckResult("state folder", FAIL, str(error), "windlass up --state DIR, or set WINDLASS_STATE")
    return CheckResult("state folder", OK, f"{state.path} ({kind or 'unknown file system'})")


def _disk(invocation: Invocation) -> CheckResult:
    place = invocation.target.state.path
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free / 2**30:.1f} GiB free at {place}"
    if free < _LITTLE_BYTES:
        return CheckResult("disk", WARN, text, "make room: objects and logs are written there")
    return CheckResult("disk", OK, text)


def _control_plane(invocation: Invocation) -> CheckResult:
    from windlass.client.transport import Request

    try:
        invocation.client.call(Request("GET", "/readyz"))
    except StatusError as error:
        return CheckResult("control plane", FAIL, f"not ready: {error.message}", "windlass status")
    except WindlassError as error:
        return CheckResult("control plane", WARN, error.message, "windlass up --detach")
    return CheckResult("control plane", OK, f"answers on {invocation.client.connection.where}")


def queues(invocation: Invocation) -> Iterator[CheckResult]:
    """Whether the queues that are named exist, and what is guaranteed: of a box as of a cluster. Nothing where they
    are not served, or not for this user. Raises ``StatusError``, ``Unreachable``."""
    from windlass.cli.queues.tree_checks import check

    found = if_served(lambda: list(check(invocation)), None)
    if found is None:
        return
    for gap in found:
        yield CheckResult("queues", WARN, gap.text, gap.remedy or "windlass queue tree")
    if not found:
        yield CheckResult("queues", OK, "those that are named exist, and the nodes have what is guaranteed")


def _certificates(invocation: Invocation) -> CheckResult:
    """Until when what the server proves itself with is good: a running one renews it a month before."""
    import datetime

    state = invocation.target.state
    try:
        text = state.server_cert.read_bytes()
    except FileNotFoundError:
        return CheckResult("certificates", OK, "the first start makes them")
    from cryptography import x509

    end = x509.load_pem_x509_certificate(text).not_valid_after_utc
    left = (end - datetime.datetime.fromtimestamp(invocation.clock.now(), datetime.UTC)).days
    words = f"good until {end:%Y-%m-%d}"
    if left < 0:
        return CheckResult("certificates", FAIL, f"ended on {end:%Y-%m-%d}", _RESTART)
    if left < _RENEWED_DAYS:
        running = bool((state.read_supervisor() or {}).get("url"))
        return CheckResult(
            "certificates", WARN, words, _RESTART if running else "windlass up, which renews them"
        )
    return CheckResult("certificates", OK, words)


def _clock(invocation: Invocation) -> CheckResult:
    """The wall clock against the newest thing that the server wrote."""
    now = invocation.clock.now()
    newest = max((path.stat().st_mtime for path in invocation.target.state.logs.glob("*.log")), default=0.0)
    if newest > now + _SKEW_SECONDS:
        ahead = newest - now
        return CheckResult(
            "clock",
            WARN,
            f"it stands {ahead:.0f} s before the newest log line: it was set back",
            "timedatectl status",
        )
    return CheckResult("clock", OK, "does not contradict the logs")


def _port(invocation: Invocation) -> CheckResult:
    record = invocation.target.state.read_supervisor() or {}
    if record.get("url"):
        return CheckResult("port", OK, f"{record['url']} is served by pid {record.get('pid')}")
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 7443))
        except OSError as error:
            return CheckResult("port", WARN, f"7443: {error.strerror}", "none needed: another port is taken")
    return CheckResult("port", OK, "7443 is free")


def _machine(invocation: Invocation) -> Iterator[CheckResult]:
    """What pods get from this machine, in the agent's own words."""
    from windlass.node import doctor
    from windlass.node.options import AgentOptions, parse_images

    state = invocation.target.state
    asked = (state.read_supervisor() or {}).get("asked") or {}
    try:
        images = parse_images(asked.get("images") or {})
        options = AgentOptions(gpus=asked.get("gpus", "auto"), images=images)
        for fact in doctor.facts(state.node, options, _told(invocation)):
            yield CheckResult(fact.topic, OK if fact.level == doctor.OK else WARN, fact.text, fact.fix)
    except (OSError, ValueError) as error:
        yield CheckResult("machine", WARN, f"could not be checked: {error}")


def _told(invocation: Invocation) -> Mapping[str, str]:
    """The annotations that the running agent gave this box's node; empty without one."""
    from windlass.api.resources import NODES

    name = (invocation.target.state.read_supervisor() or {}).get("node")
    try:
        node = invocation.client.find(NODES, name) if name else None
    except (StatusError, WindlassError):
        return {}
    return (node or {}).get("metadata", {}).get("annotations") or {}


def _files(_: Invocation) -> CheckResult:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:
        return CheckResult("open files", WARN, f"{soft} (hard limit {hard})", f"ulimit -n {min(hard, 65536)}")
    return CheckResult("open files", OK, str(soft))


def _shared_memory(_: Invocation) -> CheckResult:
    try:
        size = shutil.disk_usage("/dev/shm").total
    except FileNotFoundError:
        return CheckResult("shared memory", WARN, "there is no /dev/shm", "mount -t tmpfs tmpfs /dev/shm")
    text = f"/dev/shm of {size / 2**30:.1f} GiB"
    if size < _LITTLE_BYTES:
        return CheckResult("shared memory", WARN, text, "data loaders and NCCL may want more")
    return CheckResult("shared memory", OK, text)
