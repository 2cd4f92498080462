"""Shim: supervisor of one attempt of one container. It survives the agent.

It is started as ``python -I -S -c … DIRECTORY`` in its own session. The directory of the attempt
(:mod:`windlass.node.runtime.attempt_files` describes its files) is its only input. Its steps:

1. Claim the attempt exclusively, or exit if it is claimed.
2. Fork the container's init (:mod:`windlass.node.runtime.container_init`), write its pid, and let
   it continue.
3. Wait until exec succeeded or a step before it failed. Report it to the agent by one byte on stdout.
4. Copy stdout and stderr into the log, forward the stop signal, kill after the grace period, and
   enforce the memory limit if no cgroup does.
5. After the end of the main process: drain the pipes, write the exit record, exit.

If the directory of the attempt is removed, no agent can find the container again. The shim then
ends it.

If the shim dies, the kernel kills init (parent-death signal) and with it the pid namespace.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from windlass.kits import monotonic
from windlass.node.runtime import attempt_files, container_init, syscalls
from windlass.node.runtime.log_file import LogFile, RecordEncoder

if TYPE_CHECKING:
    from windlass.node.runtime.console import Console

_PARTIAL_LINE_SECONDS = 0.2
_MEMORY_CHECK_SECONDS = 0.5
_DRAIN_SECONDS = 5.0
_DIRECTORY_CHECK_SECONDS = 5.0
_DIRECTORY_RECHECK_SECONDS = 2.0
"""Interval until a missing directory is checked again. A live agent ends its pods itself."""
_MAX_ORPHAN_GRACE_SECONDS = 10.0


def main(directory: str) -> int:
    """Run the attempt in ``directory``.

    The exit status of the shim does not describe the container.
    """
    syscalls.close_inherited()
    syscalls.set_process_name("windlass-shim")
    spec = attempt_files.read(directory, attempt_files.SPEC)
    if spec is None:
        raise SystemExit(f"{directory} has no attempt")
    claim = {
        **attempt_files.identity(os.getpid()),
        "attempt": spec["attempt"],
        "claimed_at_ns": monotonic.now_ns(),
    }
    if not attempt_files.create(directory, attempt_files.CLAIM, claim):
        return attempt_files.ALREADY_CLAIMED
    return _Shim(directory, spec).run()


def _report_to_agent(status: bytes) -> None:
    """Write one byte to stdout and close it. The agent may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, status)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    os.close(null)


class _Shim:
    def __init__(self, directory: str, spec: dict[str, Any]) -> None:
        self.directory = directory
        self.spec = spec
        self.log = LogFile(spec["log"], max_bytes=spec["log_max_bytes"], max_files=spec["log_files"])
        self.encoders: dict[int, RecordEncoder] = {}
        self.console: Console | None = None
        """Stdin or terminal of the container, if it has one."""
        self.init = 0
        """Pid of init until it is reaped, else 0."""
        self.started_at_ns = 0
        self.status_pipe = -1
        self.kill_at: float | None = None
        self.hard_kill_at: float | None = None
        self.stopped = False
        self.over_memory = False
        self.flush_at: float | None = None
        self.memory_limit = int(spec.get("memory_watch_bytes") or 0)
        self.memory_at = monotonic.monotonic() + _MEMORY_CHECK_SECONDS if self.memory_limit else None
        self.oom_before = self._oom_kills()
        self.directory_check_at: float | None = monotonic.monotonic() + _DIRECTORY_CHECK_SECONDS
        self.directory_missing = False

    def run(self) -> int:
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        refusal = self._start()
        if refusal is not None:
            self._finish({"start_error": refusal})
            _report_to_agent(b"f")
            return 0
        self._report_start()
        _report_to_agent(b"s")
        raw = self._pump(wake_read)
        self._finish(self._result(raw))
        return 0

    def _report_start(self) -> None:
        self.started_at_ns = monotonic.now_ns()
        attempt_files.add_start(self.directory, self.started_at_ns)

    # -- starting ------------------------------------------------------------------------------

    def _start(self) -> dict[str, Any] | None:
        """Fork init and wait for exec. Return the failure of a step before exec, if any."""
        spec = self.spec
        go_read, go_write = os.pipe2(os.O_CLOEXEC)
        errors_read, errors_write = os.pipe2(os.O_CLOEXEC)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        try:
            self.console = self._open_console()
            outs = self._open_outputs()
            join = spec.get("join")
            if join and "user" in join["namespaces"]:
                syscalls.enter(join["pid"], join["start_time"], ("user",))
            if target := spec.get("target"):  # an ephemeral container among the processes of another
                syscalls.enter(target["pid"], target["start_time"], ("pid",))
            elif spec.get("pid_namespace"):
                syscalls.unshare(syscalls.CLONE_NEWPID)
        except OSError as error:
            return {"stage": "isolate", "errno": error.errno or 0, "message": str(error), "path": ""}
        self.init = os.fork()
        if self.init == 0:
            self._child(go_read, errors_write, status_write, outs)
        for descriptor in (go_read, errors_write, status_write, *(pair[1] for pair in outs.values())):
            os.close(descriptor)
        if self.console is not None and self.console.terminal is None:
            self.console.close_child_ends()
        attempt_files.write(
            self.directory, attempt_files.PROCESS, attempt_files.identity(self.init), durable=False
        )
        os.write(go_write, b"g")
        os.close(go_write)
        data = b""
        while block := os.read(errors_read, 65536):
            data += block
        os.close(errors_read)
        if data:
            os.waitpid(self.init, 0)
            return json.loads(data)
        self.status_pipe = status_read
        self.encoders = {outs[name][0]: RecordEncoder(name) for name in outs}
        for descriptor in self.encoders:
            os.set_blocking(descriptor, False)
        return None

    def _open_console(self) -> Console | None:
        spec = self.spec
        if not (spec.get("stdin") or spec.get("tty")):
            return None
        from windlass.node.runtime.console import Console  # rarely needed: most shims start without it

        return Console(
            self.directory,
            stdin=bool(spec.get("stdin")),
            stdin_once=bool(spec.get("stdin_once")),
            tty=bool(spec.get("tty")),
        )

    def _open_outputs(self) -> dict[str, tuple[int, int]]:
        """Return the ends of each output: ours, and that of the command. A terminal is one output."""
        terminal = self.console.terminal if self.console is not None else None
        if terminal is None:
            return {"stdout": os.pipe2(os.O_CLOEXEC), "stderr": os.pipe2(os.O_CLOEXEC)}
        if self.spec.get("uid") is not None:
            os.fchown(terminal[1], self.spec["uid"], self.spec.get("gid", -1))
        return {"stdout": terminal}

    def _child(self, go: int, errors: int, status: int, outs: dict[str, tuple[int, int]]) -> NoReturn:
        signal.set_wakeup_fd(-1)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null if self.console is None else self.console.child_stdin, 0)
        os.dup2(outs["stdout"][1], 1)
        os.dup2(outs.get("stderr", outs["stdout"])[1], 2)
        if self.console is not None:
            self.console.close_own_ends()
        for pair in outs.values():
            for descriptor in pair:
                with contextlib.suppress(OSError):  # that of a terminal is closed already
                    os.close(descriptor)  # else they would hide the end of the output
        if os.read(go, 1) != b"g":
            os._exit(125)  # the shim died before it wrote the pid
        os.close(go)
        container_init.run_init(self.spec, errors, status)

    # -- running -------------------------------------------------------------------------------

    def _pump(self, wake: int) -> int:
        """Copy output until the container ends. Return its raw wait status."""
        outputs = set(self.encoders)
        poller = self._poller(wake, outputs)
        raw: int | None = None
        while raw is None:
            for descriptor, event in poller.poll(self._timeout()):
                if descriptor == wake:
                    self._on_signals(os.read(wake, 512))
                elif descriptor == self.status_pipe:
                    raw = self._read_status()
                elif descriptor in outputs:
                    if event & ~select.POLLOUT and not self._copy(descriptor):
                        outputs.remove(descriptor)
                        poller.unregister(descriptor)
                elif self.console is not None:
                    self.console.serve(descriptor, event)
            if self.console is not None:
                self.console.feed_input()
                poller = self._poller(wake, outputs)
            self._on_time()
        self._drain()
        return raw

    def _poller(self, wake: int, outputs: set[int]) -> select.poll:
        """Return a poll object for all descriptors. Those of a console change at any time."""
        poller = select.poll()
        for descriptor in (self.status_pipe, wake):
            poller.register(descriptor, select.POLLIN)
        console = self.console
        events = 0 if console is not None and console.is_congested else select.POLLIN
        if console is not None and console.waits_for_terminal:
            events |= select.POLLOUT
        for descriptor in outputs if events else ():
            poller.register(descriptor, events)
        if console is not None:
            for descriptor, wanted in console.interests():
                poller.register(descriptor, wanted)
        return poller

    def _timeout(self) -> float | None:
        times = (self.kill_at, self.hard_kill_at, self.flush_at, self.memory_at, self.directory_check_at)
        due = [time for time in times if time is not None]
        return max(0.0, (min(due) - monotonic.monotonic()) * 1000) if due else None

    def _on_time(self) -> None:
        now = monotonic.monotonic()
        if self.flush_at is not None and now >= self.flush_at:
            self.flush_at = None
            for encoder in self.encoders.values():
                if encoder.has_partial_line:
                    self.log.write(encoder.flush())
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            self._kill_all(now)
        if self.hard_kill_at is not None and now >= self.hard_kill_at:
            self.hard_kill_at = None
            self._signal(signal.SIGKILL)
        if self.memory_at is not None and now >= self.memory_at:
            self.memory_at = now + _MEMORY_CHECK_SECONDS
            if self.init and self._memory() > self.memory_limit:
                self.over_memory = True
                self.memory_at = None
                self._kill_all(now)
        if self.directory_check_at is not None and now >= self.directory_check_at:
            self._check_directory(now)

    def _check_directory(self, now: float) -> None:
        if not self._is_directory_gone():
            self.directory_missing, self.directory_check_at = False, now + _DIRECTORY_CHECK_SECONDS
        elif not self.directory_missing:
            self.directory_missing, self.directory_check_at = True, now + _DIRECTORY_RECHECK_SECONDS
        else:
            self.directory_check_at = None
            self._stop(self._grace())

    def _is_directory_gone(self) -> bool:
        try:
            os.stat(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # a file system that does not respond
            return False
        return False

    def _grace(self) -> float:
        """Return the seconds between SIGTERM and SIGKILL: the agent's, else the manifest's."""
        try:
            with open(os.path.join(self.directory, attempt_files.STOP), encoding="ascii") as stream:
                return float(stream.read())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            grace = float(self.spec["grace_seconds"])
            return min(grace, _MAX_ORPHAN_GRACE_SECONDS) if self._is_directory_gone() else grace

    def _kill_all(self, now: float) -> None:
        self._signal(container_init.KILL_ALL)
        self.hard_kill_at = now + 2.0

    def _signal(self, number: int) -> None:
        """Send a signal to init unless it has ended: a stop may arrive at the same time as its end."""
        if self.init:
            os.kill(self.init, number)

    def _on_signals(self, numbers: bytes) -> None:
        if any(number in (signal.SIGTERM, signal.SIGINT) for number in numbers):
            self._stop(self._grace())

    def _stop(self, grace: float) -> None:
        due = monotonic.monotonic() + grace
        self.kill_at = due if self.kill_at is None else min(due, self.kill_at)
        if not self.stopped:
            self.stopped = True
            if grace > 0:
                self._signal(signal.SIGTERM)

    def _read_status(self) -> int:
        data = os.read(self.status_pipe, 64)
        _, init_status = os.waitpid(self.init, 0)
        self.init = 0
        return int(data) if data else init_status  # init was killed and reported nothing

    def _copy(self, descriptor: int) -> bool:
        """Copy available output into the log. Return False at the end of the stream."""
        encoder = self.encoders[descriptor]
        try:
            data = os.read(descriptor, 65_536)  # a whole pipe
        except BlockingIOError:
            return True
        except OSError:  # a terminal without processes
            data = b""
        if data and self.console is not None:
            self.console.on_output(encoder.stream, data)
        records = encoder.feed(data) if data else encoder.finish()
        if records:
            self.log.write(records)
        if encoder.has_partial_line and self.flush_at is None:
            self.flush_at = monotonic.monotonic() + _PARTIAL_LINE_SECONDS
        return bool(data)

    def _drain(self) -> None:
        """Read the pipes to their end, within a time limit. No process of the container is left."""
        deadline = monotonic.monotonic() + _DRAIN_SECONDS
        poller = select.poll()
        for descriptor in self.encoders:
            poller.register(descriptor, select.POLLIN)
        ends = set()
        while len(ends) < len(self.encoders) and monotonic.monotonic() < deadline:
            for descriptor, _ in poller.poll(200):
                if not self._copy(descriptor):
                    ends.add(descriptor)
                    poller.unregister(descriptor)
        for descriptor, encoder in self.encoders.items():
            if descriptor not in ends and encoder.has_partial_line:
                self.log.write(encoder.finish())

    # -- memory --------------------------------------------------------------------------------

    def _memory(self) -> int:
        """Return the memory of the container in bytes.

        Above the limit, shared pages count once.
        """
        pids = syscalls.descendants(self.init)
        page = os.sysconf("SC_PAGE_SIZE")
        resident = sum(_resident_pages(pid) for pid in pids) * page
        if resident <= self.memory_limit or len(pids) == 1:
            return resident
        return sum(_proportional_bytes(pid) for pid in pids)

    def _oom_kills(self) -> int:
        cgroup = self.spec.get("cgroup")
        if not cgroup:
            return 0
        try:
            with open(os.path.join(cgroup, "memory.events"), encoding="ascii") as stream:
                counts = dict(line.split() for line in stream)
        except OSError:
            return 0
        return int(counts.get("oom_kill", 0))

    # -- the end -------------------------------------------------------------------------------

    def _result(self, raw: int) -> dict[str, Any]:
        killed_by = os.WTERMSIG(raw) if os.WIFSIGNALED(raw) else 0
        code = 128 + killed_by if killed_by else os.WEXITSTATUS(raw)
        return {
            "code": code,
            "signal": killed_by,
            "oom": self.over_memory or self._oom_kills() > self.oom_before,
            "stopped": self.stopped,
            "started_at_ns": self.started_at_ns,
        }

    def _finish(self, result: dict[str, Any]) -> None:
        result["finished_at_ns"] = monotonic.now_ns()
        result["lost_log_bytes"] = self.log.lost_bytes
        while True:
            self.log.report_losses()
            try:
                attempt_files.write(self.directory, attempt_files.EXIT, result)
                self.log.close()
                break
            except OSError:  # a full disk: the exit status must not be lost while the shim runs
                if not os.path.isdir(self.directory):
                    break
                monotonic.pause(1.0)
        if self.console is not None:
            self.console.finish()


def _resident_pages(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as stream:
            return int(stream.read().split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as stream:
            for line in stream:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError:
        return _resident_pages(pid) * os.sysconf("SC_PAGE_SIZE")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
