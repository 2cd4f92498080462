"""Supervisor of the three processes: keeps them alive and stops them in order.

The processes begin as copies of the supervisor, so that the imports that all of them
need are done once. Processes are started by one thread only, because ``PR_SET_PDEATHSIG`` of the children
is tied to the thread that started them. Other threads only talk to the server. Nothing
here depends on the content of the processes. Invariants:

* The lock of the state directory is held from before the first change until after the
  last one.
* If the directory is removed, all processes stop in order. A replacement by another
  supervisor is not touched.
* A child that dies is restarted after a growing delay.
* If the supervisor is killed, the kernel kills the children. Only the shims of running
  pods stay, for the next agent.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass import __version__
from windlass.api.error_codes import exit_status_of
from windlass.api.errors import WindlassError
from windlass.app.failures import USELESS_TO_RETRY, failure_file, read_failure
from windlass.app.options import UpOptions
from windlass.app.progress import ProgressReporter
from windlass.app.running import READY_SECONDS
from windlass.app.sockets import LOOPBACK, bind_tcp, bind_unix
from windlass.app.threads import EventPoster, Readiness
from windlass.cli.bootstrap import GIVING_UP, last_line, state_error
from windlass.kits import processes
from windlass.kits import rng as chance
from windlass.kits.backoff import Backoff
from windlass.kits.clock import SystemClock
from windlass.kits.files import FileLock, unlink_if_exists
from windlass.kits.state import StateError, StateFolder
from windlass.kits.timestamps import rfc3339
from windlass.node import kubelet_flags
from windlass.node.images import store

ROLES = ("server", "control", "node")
STOP_ORDER = (("node", 45.0), ("control", 5.0), ("server", 10.0))
"""Order of stopping and timeouts in seconds; the agent ends the pods within its own
grace period."""

_DISK_FULL = ("WL-STATE-507", "WL-STORE-507")
"""Errors on which the control plane gives up, but leaves its pods running."""

_HEALTHY_SECONDS = 30.0
_TICK_SECONDS = 2.0
_JUMP_SECONDS = 10.0
_LOG_LIMIT_BYTES = 32 << 20
_EARLY_DEATHS = 4


@dataclass(slots=True)
class Managed:
    """State of one of the three processes."""

    role: str
    backoff: Backoff
    child: processes.Child | None = None
    started_at: float = 0.0
    due_at: float = 0.0
    restarts: int = 0
    last_end: str = ""
    born: str = ""
    last_exit: dict[str, Any] = field(default_factory=dict)
    """Exit status, start and end (RFC 3339) of the process before the present one."""

    def record(self) -> dict[str, Any]:
        """Return the entry of the process in the supervisor's record."""
        return {
            "pid": self.child.pid if self.child is not None else None,
            "startTicks": self.child.started if self.child is not None else None,
            "started": self.born,
            "restarts": self.restarts,
            "lastEnd": self.last_end,
            "lastExit": self.last_exit,
        }


@dataclass(slots=True)
class _Wake:
    """Pipe that wakes the main loop on signals and from threads."""

    reader: int
    writer: int
    signals: list[int] = field(default_factory=list)

    @staticmethod
    def make() -> _Wake:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        return _Wake(reader, writer)

    def wake(self) -> None:
        try:
            os.write(self.writer, b"\0")
        except BlockingIOError:
            return  # the pipe is full, so the loop wakes in any case

    def wait(self, seconds: float) -> None:
        select.select([self.reader], [], [], max(0.0, seconds))
        try:
            while os.read(self.reader, 4096):
                pass
        except BlockingIOError:
            return


class Supervisor:
    """Supervisor of one control plane; the caller takes and releases the directory's lock."""

    def __init__(
        self,
        options: UpOptions,
        reporter: ProgressReporter,
        clock: SystemClock,
        lock: FileLock,
        opening: str = "",
        program: Callable[[list[str]], int] | None = None,
    ) -> None:
        """``program(arguments)``: the program of a role, for copies of this process.

        ``None``: each process is started as a new interpreter.
        """
        self._options = options
        self._program = program
        self._opening = opening
        self._before: dict[str, Any] = {}
        """Previous record; its options of the last start are kept if this start never
        gets ready."""
        self._state: StateFolder = options.state
        self._reporter = reporter
        self._clock = clock
        self._lock = lock
        self._wake = _Wake.make()
        self._node = options.node_name or default_node_name()
        rng = chance.system()
        self._managed = {role: Managed(role, Backoff(rng, 0.1, 2.0, 10.0, 0.2)) for role in ROLES}
        self._tcp: socket.socket | None = None
        self._unix: socket.socket | None = None
        self._readiness: Readiness | None = None
        self._event_poster = EventPoster(self._state, self._node, clock)
        self._ready = False
        self._born = rfc3339(clock.now())
        self._began = clock.monotonic()
        self._skew = clock.now() - clock.elapsed()

    def run(self) -> int:
        """Run until stopped; return the exit status: 0 after an orderly end, otherwise
        that of the error."""
        self._catch_signals()
        failure: WindlassError | None = None
        try:
            self._bind()
            self._record()
            self._reporter.phase(f"starting the control plane {self._opening}".rstrip())
            for managed in self._managed.values():
                self._start(managed)
            self._readiness = Readiness(self._state, self._node, self._clock, self._began, self._wake.wake)
            self._readiness.start()
            self._event_poster.start()
            failure = self._watch()
        except (WindlassError, StateError, OSError) as error:
            failure = self._explained(error)
        finally:
            self._stop(keep_pods=failure is not None and failure.code in _DISK_FULL)
        if failure is not None:
            self._log(f"{GIVING_UP}{failure.message}: {failure.evidence}")
            self._reporter.error(failure)
            return exit_status_of(failure.code)
        return 0

    def _explained(self, error: Exception) -> WindlassError:
        if isinstance(error, WindlassError):
            return error
        if isinstance(error, StateError):
            return state_error(error)
        assert isinstance(error, OSError)
        return state_error(StateError.of(self._state.path, error))

    def _catch_signals(self) -> None:
        signal.set_wakeup_fd(self._wake.writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, lambda received, _frame: self._wake.signals.append(received))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _bind(self) -> None:
        self._before = self._state.read_supervisor() or {}
        last = self._before.get("port")
        own = {"pid": os.getpid(), "port": last, "asked": self._options.asked(), "ready": False}
        self._state.write_supervisor(own)
        for role in (*ROLES, "supervisor"):
            if role != "supervisor":
                processes.rotate(self._state.log(role))
            unlink_if_exists(failure_file(self._state, role))
        store(self._state.node, self._options.images or {})
        kubelet_flags.store(self._state.node, self._options.kubelet)
        self._tcp = bind_tcp(self._options.port, last if isinstance(last, int) else None)
        self._unix = bind_unix(self._state.socket)

    # ------------------------------------------------------------------ watching

    def _watch(self) -> WindlassError | None:
        while not self._wake.signals:
            if not self._lock.in_place():
                return self._lost()
            failure = self._check_children()
            if failure is not None:
                return failure
            if not self._ready and self._readiness is not None:
                if self._readiness.done:
                    self._became_ready()
                elif self._clock.monotonic() - self._began > READY_SECONDS:
                    return self._not_ready()
            self._notice_clock_jump()
            self._limit_logs()
            self._wake.wait(self._seconds_to_next_check())
        return None

    def _seconds_to_next_check(self) -> float:
        now = self._clock.monotonic()
        due = [m.due_at - now for m in self._managed.values() if m.child is None]
        return min([_TICK_SECONDS, *due])

    def _check_children(self) -> WindlassError | None:
        for managed in self._managed.values():
            if managed.child is not None and managed.child.poll() is not None:
                failure = self._ended(managed, managed.child.poll() or 0)
                if failure is not None:
                    return failure
            if managed.child is None and managed.due_at <= self._clock.monotonic():
                self._start(managed)
                self._record()
        return None

    def _ended(self, managed: Managed, code: int) -> WindlassError | None:
        now = self._clock.monotonic()
        lived = now - managed.started_at
        managed.child = None
        managed.last_end = ending(code)
        managed.last_exit = {"code": code, "started": managed.born, "ended": rfc3339(self._clock.now())}
        reported = read_failure(self._state, managed.role)
        if (
            code == USELESS_TO_RETRY
            and reported is not None
            and (not self._ready or reported.code in _DISK_FULL)
        ):
            return reported
        if lived > _HEALTHY_SECONDS:
            managed.backoff.reset()
        managed.restarts += 1
        if not self._ready and managed.restarts > _EARLY_DEATHS:
            return self._keeps_dying(managed)
        pause = managed.backoff.next()
        managed.due_at = now + pause
        why = f" ({reported.message})" if reported is not None else ""
        message = f"{managed.role} {managed.last_end} after {lived:.1f} s{why}; starts again in {pause:.1f} s"
        self._log(message)
        self._reporter.phase(message)
        self._event_poster.post("ComponentRestarted", message)
        self._record()
        return None

    def _became_ready(self) -> None:
        self._ready = True
        record = self._record()
        seconds = self._clock.monotonic() - self._began
        parts = ", ".join(self._readiness.took) if self._readiness is not None else ""
        self._log(f"ready on {record['url']} after {seconds:.2f} s ({parts})")
        self._reporter.ready(record)

    def _keeps_dying(self, managed: Managed) -> WindlassError:
        log = self._state.log(managed.role)
        return WindlassError(
            "WL-UP-500",
            f"the {managed.role} process does not stay up: it {managed.last_end}",
            evidence=f"{managed.restarts} starts failed; the end of {log}: {last_line(log)}",
            remedies=(f"tail -n 50 {log}", "windlass doctor"),
        )

    def _lost(self) -> WindlassError:
        path = self._state.lock
        what = "is another file now" if path.exists() else "is gone"
        return WindlassError(
            "WL-STATE-410",
            f"the state folder {self._state.path} was removed or replaced under the running control plane",
            evidence=f"{path}, the lock that it holds, {what}; its pods are ended, and its state is lost",
            remedies=("windlass up   (and stop it with windlass down before the folder is removed)",),
        )

    def _not_ready(self) -> WindlassError:
        waits_for = self._readiness.waits_for if self._readiness is not None else "the server"
        return WindlassError(
            "WL-UP-504",
            f"the control plane was not ready within {READY_SECONDS:.0f} s",
            evidence=f"it still waits for {waits_for}; logs: {self._state.logs}",
            remedies=(f"tail -n 50 {self._state.logs}/*.log", "windlass doctor"),
        )

    def _notice_clock_jump(self) -> None:
        skew = self._clock.now() - self._clock.elapsed()
        jumped = skew - self._skew
        if abs(jumped) < _JUMP_SECONDS:
            return
        self._skew = skew
        direction = "forwards" if jumped > 0 else "backwards"
        message = (
            f"the system clock jumped {direction} by {abs(jumped):.0f} s; ages and time limits shown are off "
            "by as much, nothing else is affected"
        )
        self._log(message)
        self._event_poster.post("ClockJumped", message)

    def _limit_logs(self) -> None:
        for role in (*ROLES, "supervisor"):
            path = self._state.log(role)
            try:
                if path.stat().st_size > _LOG_LIMIT_BYTES:
                    processes.copy_and_truncate(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._log(f"cannot shorten {path}: {error}")

    # ------------------------------------------------------------------ start and stop

    def _start(self, managed: Managed) -> None:
        arguments = [managed.role, "--state", str(self._state.path), "--parent", str(os.getpid())]
        arguments += ["--node-name", self._node]
        descriptors: tuple[int, ...] = ()
        if managed.role == "server" and self._tcp is not None and self._unix is not None:
            descriptors = (self._tcp.fileno(), self._unix.fileno())
            arguments += ["--tcp-fd", str(descriptors[0]), "--unix-fd", str(descriptors[1])]
        if managed.role in ("node", "control"):
            arguments += ["--gpus", self._options.gpus or "auto"]
        unlink_if_exists(failure_file(self._state, managed.role))
        managed.child = self._begin(arguments, self._state.log(managed.role), descriptors)
        managed.started_at = self._clock.monotonic()
        managed.born = rfc3339(self._clock.now())

    def _begin(self, arguments: list[str], log: Path, descriptors: tuple[int, ...]) -> processes.Child:
        """Start a process: the first ones as copies of this one, which share what it imported.

        Copies are possible only before the supervisor has other threads. A process that
        is started again later is a new interpreter.
        """
        if self._program is not None and threading.active_count() == 1:
            work = functools.partial(self._program, arguments)
            title = " ".join(("windlass.app", *arguments))
            return processes.fork(work, log, title=title, descriptors=descriptors)
        return processes.spawn(
            processes.python_module("windlass.app", *arguments), log, descriptors=descriptors
        )

    def _stop(self, *, keep_pods: bool = False) -> None:
        """Stop the node agent first (it ends its pods and reports that), then control,
        then the server.

        :param keep_pods: kill the agent and leave its pods running for the next agent
        """
        node = self._managed["node"].child
        if keep_pods and node is not None and node.poll() is None:
            node.send(signal.SIGKILL)
            self._wait_for(node, 5.0, "node")
        hurry = signal.SIGQUIT in self._wake.signals or self._never_served()
        for role, patience in STOP_ORDER:
            child = self._managed[role].child
            if child is None or child.poll() is not None:
                continue
            child.send(signal.SIGQUIT if hurry and role == "node" else signal.SIGTERM)
            if not self._wait_for(child, patience, role):
                self._log(f"{role} did not end within {patience:.0f} s and is killed")
                child.send(signal.SIGKILL)
                self._wait_for(child, 5.0, role)
        if self._lock.in_place() and not keep_pods:
            self._end_leftovers()
        for listener in (self._tcp, self._unix):
            if listener is not None:
                listener.close()
        # Otherwise another supervisor owns the socket.
        if self._lock.in_place() or not self._state.lock.exists():
            unlink_if_exists(self._state.socket)
        if self._lock.in_place():
            self._forget(kept_pods=keep_pods)
        signal.set_wakeup_fd(-1)
        self._log("stopped")

    def _never_served(self) -> bool:
        """Return whether the server gave up at the start, so that the agent cannot
        report its pods' end."""
        server = self._managed["server"].child
        return not self._ready and (server is None or server.poll() is not None)

    def _end_leftovers(self) -> None:
        """End processes that the agent left because it was killed or had just started."""
        from windlass.node.cleanup import end_all

        try:
            ended = end_all(self._state, 0.0)
        except OSError as error:
            self._log(f"cannot look for processes that were left: {error}")
            return
        if ended:
            self._log(f"ended {len(ended)} process(es) that the agent had left: {ended}")

    def _wait_for(self, child: processes.Child, seconds: float, role: str) -> bool:
        deadline = self._clock.monotonic() + seconds
        while child.poll() is None:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            hurried = signal.SIGQUIT in self._wake.signals
            self._wake.wait(min(left, _TICK_SECONDS))
            if role == "node" and not hurried and signal.SIGQUIT in self._wake.signals:
                child.send(signal.SIGQUIT)
        return True

    # ------------------------------------------------------------------ records

    def _record(self) -> dict[str, Any]:
        port = self._tcp.getsockname()[1] if self._tcp is not None else 0
        record = {
            "pid": os.getpid(),
            "startTicks": processes.start_time(os.getpid()),
            "started": self._born,
            "url": f"https://{LOOPBACK}:{port}",
            "port": port,
            "socket": str(self._state.socket),
            "kubeconfig": str(self._state.kubeconfig),
            "version": __version__,
            "node": self._node,
            "asked": self._options.asked(),
            "ready": self._ready,
            "processes": {m.role: m.record() for m in self._managed.values()},
        }
        self._state.write_supervisor(record)
        return record

    def _forget(self, *, kept_pods: bool) -> None:
        """Keep the port and the options in the record.

        The port is used again by the next start, so that kubeconfigs stay valid. The
        options are used by the next implicit start, or by any start if pods are still
        running, since they hold those devices.
        """
        port = (self._state.read_supervisor() or {}).get("port")
        chosen = self._options.asked() if self._ready else self._before.get("asked", {})
        in_order = not kept_pods or (not self._ready and "stopped" in self._before)
        stopped_at = rfc3339(self._clock.now())
        try:
            self._state.write_supervisor(
                {"port": port, "asked": chosen, "stopped" if in_order else "gaveUp": stopped_at}
            )
        except OSError as error:
            self._log(f"cannot write {self._state.supervisor}: {error}")

    def _log(self, message: str) -> None:
        with contextlib.suppress(OSError):  # the disk of the log may be full
            print(f"{rfc3339(self._clock.now())} supervisor: {message}", file=sys.stderr, flush=True)


def default_node_name() -> str:
    """Return this machine's name as a node name (DNS-1123 label characters only)."""
    name = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip("-.")
    return name[:63].rstrip("-.") or "box"


def ending(code: int) -> str:
    """Return a text on how a process ended."""
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
