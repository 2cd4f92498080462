"""Checks of ``windlass doctor`` for this machine, each with its result and a remedy."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import NODES, PODS
from windlass.cli.errors import if_served
from windlass.cli.invocation import Invocation
from windlass.client.errors import Unreachable
from windlass.kits.state import NETWORK_FILESYSTEMS, StateError, StateFolder, StateProblem, filesystem_of

if TYPE_CHECKING:
    from windlass.node.options import AgentOptions

OK, WARN, FAIL = "ok", "warn", "fail"
_LITTLE_BYTES = 1 << 30
_SKEW_SECONDS = 5.0
_RENEWED_DAYS = 29
"""Minimum remaining validity in days, as a running server renews its certificate earlier.
"""
_RESTART = "windlass down && windlass up   (creates new ones)"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check.

    ``level``: ok, warn (works with limits), fail (does not work).
    ``state`` and ``nodes``: of a part of the GPU stack (:mod:`windlass.cli.doctor.gpu_parts`).
    """

    name: str
    level: str
    text: str
    remedy: str = ""
    state: str = ""
    nodes: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"check": self.name, "level": self.level, "found": self.text}
        record["remedy"] = self.remedy
        if self.state:
            record |= {"state": self.state, "nodes": list(self.nodes)}
        return record


def all_checks(invocation: Invocation) -> Iterator[CheckResult]:
    """Yield all checks in order.

    A check that cannot be made reports that instead of raising.
    """
    checks: tuple[tuple[str, Callable[[Invocation], CheckResult]], ...] = (
        ("python", _python),
        ("kernel", _kernel),
        ("state directory", _directory),
        ("disk", _disk),
        ("control plane", _control_plane),
        ("node", _node),
        ("certificates", _certificates),
        ("clock", _clock),
        ("port", _port),
        ("open files", _files),
        ("shared memory", _shared_memory),
    )
    for name, check in checks:
        try:
            yield check(invocation)
        except Unreachable as error:
            yield CheckResult(name, WARN, f"could not be checked: {error.message}", "windlass up --detach")
        except (OSError, ValueError, StatusError) as error:
            yield CheckResult(name, WARN, f"could not be checked: {error}")
    try:
        yield from queues(invocation)
    except Unreachable:
        pass  # the check of the control plane reports it
    except StatusError as error:
        yield CheckResult("queues", WARN, f"could not be checked: {error}")
    yield from _machine(invocation)
    yield from _gpu_parts(invocation)


def _gpu_parts(invocation: Invocation) -> Iterator[CheckResult]:
    """Check the GPU stack of all nodes; without a control plane, that of this machine."""
    from windlass.cli.doctor import gpu_parts

    try:
        nodes, pods = invocation.client.list(NODES).items, invocation.client.list(PODS, None).items
    except (StatusError, WindlassError):
        nodes, pods = [], []
    if not nodes:
        from windlass.node import doctor

        try:
            nodes = [doctor.local_node(_agent_options(invocation))]
        except (OSError, ValueError) as error:
            yield CheckResult("driver", WARN, f"could not be checked: {error}")
            return
    yield from gpu_parts.checks(nodes, pods, {})


def _agent_options(invocation: Invocation) -> AgentOptions:
    """Return the options of the agent that runs, or would run, on this machine."""
    from windlass.node.options import AgentOptions, parse_images

    asked = (invocation.target.state.read_supervisor() or {}).get("asked") or {}
    return AgentOptions(gpus=asked.get("gpus", "auto"), images=parse_images(asked.get("images") or {}))


def _python(_: Invocation) -> CheckResult:
    return CheckResult("python", OK, f"{platform.python_version()} ({sys.executable})")


def _kernel(_: Invocation) -> CheckResult:
    system = f"{platform.system()} {platform.release()}"
    if platform.system() != "Linux":
        return CheckResult("kernel", FAIL, system, "the control plane and the agent need Linux")
    if not hasattr(os, "pidfd_open"):
        return CheckResult("kernel", FAIL, system, "Linux 5.3 or newer is needed (pidfd)")
    return CheckResult("kernel", OK, system)


def _directory(invocation: Invocation) -> CheckResult:
    state: StateFolder = invocation.target.state
    path = state.path
    while not path.exists():
        path = path.parent
    kind = filesystem_of(path)
    if kind in NETWORK_FILESYSTEMS:
        return CheckResult(
            "state directory",
            FAIL,
            f"{state.path} is on {kind}",
            "windlass up --state DIR   (on a local disk)",
        )
    if not os.access(path, os.W_OK):
        error = StateError(StateProblem.DENIED, path, "cannot be written")
        return CheckResult(
            "state directory", FAIL, str(error), "windlass up --state DIR   (or set WINDLASS_STATE)"
        )
    return CheckResult("state directory", OK, f"{state.path} ({kind or 'unknown file system'})")


def _disk(invocation: Invocation) -> CheckResult:
    path = invocation.target.state.path
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    text = f"{free / 2**30:.1f} GiB free at {path}"
    if free < _LITTLE_BYTES:
        return CheckResult("disk", WARN, text, "free disk space: objects and logs are written there")
    return CheckResult("disk", OK, text)


def _control_plane(invocation: Invocation) -> CheckResult:
    from windlass.client.transport import Request

    try:
        invocation.client.call(Request("GET", "/readyz"))
    except StatusError as error:
        return CheckResult("control plane", FAIL, f"not ready: {error.message}", "windlass status")
    except WindlassError as error:
        return CheckResult("control plane", WARN, error.message, "windlass up --detach")
    return CheckResult("control plane", OK, f"responds on {invocation.client.connection.where}")


def _node(invocation: Invocation) -> CheckResult:
    from windlass.api.resources import NODES
    from windlass.cli.nodes.own_node import deleted_node

    problem = deleted_node(invocation)
    if problem is not None:
        return CheckResult("node", FAIL, problem.message, problem.remedies[-1])
    name = (invocation.target.state.read_supervisor() or {}).get("node")
    node = invocation.client.find(NODES, name) if name else None
    if node is None:
        return CheckResult("node", WARN, "no node agent has registered this machine", "windlass up --detach")
    if (node.get("spec") or {}).get("unschedulable"):
        return CheckResult("node", WARN, f"{name} is cordoned", f"windlass node uncordon {name}")
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c for c in conditions if c.get("type") == "Ready"), {})
    if ready.get("status") != "True":
        why = ready.get("message") or "no message"
        return CheckResult("node", FAIL, f"{name} is not ready: {why}", f"windlass describe node {name}")
    return CheckResult("node", OK, f"{name} is ready")


def queues(invocation: Invocation) -> Iterator[CheckResult]:
    """Check that the queues that jobs name exist, and that guarantees can be met.

    For a machine and for clusters. Yields nothing if queues are not served, or
    forbidden. Raises ``StatusError`` and ``Unreachable``.
    """
    from windlass.cli.queues.tree_checks import check

    problems = if_served(lambda: list(check(invocation)), None)
    if problems is None:
        return
    for problem in problems:
        yield CheckResult("queues", WARN, problem.text, problem.remedy or "windlass queue tree")
    if not problems:
        yield CheckResult("queues", OK, "all queues in use exist, and the nodes have what is guaranteed")


def _certificates(invocation: Invocation) -> CheckResult:
    """Check the server's certificate, which a running server renews a month before its end."""
    import datetime

    state = invocation.target.state
    try:
        certificate = state.server_cert.read_bytes()
    except FileNotFoundError:
        return CheckResult("certificates", OK, "created at the first start")
    from cryptography import x509

    end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    left = (end - datetime.datetime.fromtimestamp(invocation.clock.now(), datetime.UTC)).days
    text = f"valid until {end:%Y-%m-%d}"
    if left < 0:
        return CheckResult("certificates", FAIL, f"expired on {end:%Y-%m-%d}", _RESTART)
    if left < _RENEWED_DAYS:
        running = bool((state.read_supervisor() or {}).get("url"))
        return CheckResult("certificates", WARN, text, _RESTART if running else "windlass up   (renews them)")
    return CheckResult("certificates", OK, text)


def _clock(invocation: Invocation) -> CheckResult:
    """Compare the wall clock with the newest log file."""
    now = invocation.clock.now()
    newest = max((path.stat().st_mtime for path in invocation.target.state.logs.glob("*.log")), default=0.0)
    if newest > now + _SKEW_SECONDS:
        ahead = newest - now
        return CheckResult(
            "clock",
            WARN,
            f"it is {ahead:.0f} s behind the newest log line: it was set back",
            "timedatectl status",
        )
    return CheckResult("clock", OK, "consistent with the logs")


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
            return CheckResult("port", WARN, f"7443: {error.strerror}", "none needed: another port is used")
    return CheckResult("port", OK, "7443 is free")


def _machine(invocation: Invocation) -> Iterator[CheckResult]:
    """Yield the node agent's own checks of what pods get from this machine."""
    from windlass.node import doctor

    state = invocation.target.state
    try:
        options = _agent_options(invocation)
        for fact in doctor.facts(state.node, options, _node_annotations(invocation)):
            yield CheckResult(fact.topic, OK if fact.level == doctor.OK else WARN, fact.text, fact.fix)
    except (OSError, ValueError) as error:
        yield CheckResult("machine", WARN, f"could not be checked: {error}")


def _node_annotations(invocation: Invocation) -> Mapping[str, str]:
    """Return the annotations of this machine's node; empty without a running agent."""
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
        return CheckResult("shared memory", WARN, text, "data loaders and NCCL may need more")
    return CheckResult("shared memory", OK, text)
