"""Init process of a container, and the last steps before exec.

The shim forks :func:`run_init`. Where the machine permits it, init is pid 1 of a new pid namespace.
Elsewhere it is a child subreaper. Either way it adopts and reaps every orphan of the container.
When the main process ends by itself, init kills all others. After a stop signal all processes have
the grace period (:mod:`windlass.node.runtime.termination`).
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
from typing import TYPE_CHECKING, Any, NoReturn

from windlass.kits import monotonic
from windlass.node.runtime import mounts, syscalls
from windlass.node.runtime.termination import Descendants, GracefulStop

if TYPE_CHECKING:
    from collections.abc import Callable

KILL_ALL = signal.SIGUSR2
"""Signal from the shim to init at the end of the grace period."""

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
_CHECK_INTERVAL = 0.2
"""Interval (seconds) between looks at the processes that a stop signal has left."""
_WATCHED = {signal.SIGCHLD, KILL_ALL, *_FORWARDED}


class Refused(Exception):
    """A step before exec failed. ``stage``: name of the step."""

    def __init__(self, stage: str, error: OSError) -> None:
        super().__init__(str(error))
        self.stage = stage
        self.error = error


def run_init(spec: dict[str, Any], errors: int, status: int) -> NoReturn:
    """Run init: prepare the namespaces, start the main process, and reap until it ends.

    It writes the raw wait status of the main process to ``status``.
    """
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if _has_no_reader(status):
            os._exit(125)  # the shim died before the parent-death signal was set
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        syscalls.set_process_name("windlass-init")
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        _isolate(spec)
        main = _spawn(spec) if _is_plain(spec) else _fork(spec, errors, status)
    except Refused as refusal:
        _report(errors, refusal.stage, refusal.error)
        os._exit(126)
    except OSError as error:
        _report(errors, "isolate", error)
        os._exit(126)
    _release(errors)
    result = _reap_until_end(main)
    if os.getpid() != 1:
        _kill_descendants()
    os.write(status, str(result).encode())
    os._exit(0)


def _is_plain(spec: dict[str, Any]) -> bool:
    """Return whether init may start the main process without a fork.

    It may if the process needs nothing but a session, a directory and a umask: no user, terminal or
    limits of its own. Init must be pid 1: the process cannot outlive it then.
    """
    return os.getpid() == 1 and not any(spec.get(field) for field in _OWN) and _KEEPS.isdisjoint(spec)


_OWN = ("tty", "own_ids", "affinity", "nice")
_KEEPS = frozenset(("uid", "gid", "groups", "oom_score_adj"))
"""Fields of a launch spec that only a process of Python can apply between fork and exec."""


def _spawn(spec: dict[str, Any]) -> int:
    """Start the main process by ``posix_spawn``, which copies no memory; return its pid.

    Raises :class:`Refused`.
    """
    stage = "cwd"
    try:
        os.chdir(spec["cwd"])
        os.umask(spec.get("umask", 0o022))
        stage = "exec"
        return _first(spec["argv"], spec["env"], _spawn_program)
    except OSError as error:
        raise Refused(stage, error) from None
    except ValueError as error:  # for instance a NUL byte in an argument
        raise Refused(stage, OSError(errno.EINVAL, str(error))) from None


def _spawn_program(path: str, argv: list[str], env: dict[str, str]) -> int:
    os.stat(path)  # a missing program of the PATH costs no process
    return os.posix_spawn(path, argv, env, setsid=True, setsigmask=(), setsigdef=_resettable())


def _fork(spec: dict[str, Any], errors: int, status: int) -> int:
    """Fork the main process; return its pid."""
    init = os.getpid()
    main = os.fork()
    if main == 0:
        os.close(status)
        become(spec, errors, init)
    return main


def _has_no_reader(pipe: int) -> bool:
    poller = select.poll()
    poller.register(pipe, 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))


def _release(errors: int) -> None:
    """Close what init does not need: its copy of the output pipes would hide their end."""
    os.close(errors)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def _report(errors: int, stage: str, error: OSError) -> None:
    record = {
        "stage": stage,
        "errno": error.errno or 0,
        "message": error.strerror or str(error),
        "path": error.filename if isinstance(error.filename, str) else "",
    }
    os.write(errors, json.dumps(record).encode())


def _reap_until_end(main: int) -> int:
    """Reap children until the container has ended. Return the raw wait status of ``main``.

    Without a stop the container ends with its main process. After a stop signal the grace
    period belongs to all its processes: it ends when none is left, or on :data:`KILL_ALL`.
    """
    ended: int | None = None
    stop: GracefulStop | None = None
    killed = False
    while True:
        number = _next_signal(_CHECK_INTERVAL if stop is not None else None)
        if number == KILL_ALL:
            killed = True
            _kill_descendants(once=True)
            if ended is None:
                _signal(main, signal.SIGKILL)
        elif number == signal.SIGTERM:
            stop = GracefulStop(number, Descendants())
        elif number not in (None, signal.SIGCHLD):
            GracefulStop(number, Descendants()).proceed(monotonic.monotonic())
        raw, left = _reap(main)
        if raw is not None:
            ended = raw
        if ended is not None and (stop is None or killed or not left):
            return ended
        if stop is not None and not killed:
            stop.proceed(monotonic.monotonic())


def _next_signal(seconds: float | None) -> int | None:
    if seconds is None:
        return signal.sigwaitinfo(_WATCHED).si_signo
    found = signal.sigtimedwait(_WATCHED, seconds)
    return None if found is None else found.si_signo


def _reap(main: int) -> tuple[int | None, bool]:
    """Collect all ended children. Return the status of ``main`` if it ended, and whether others are left."""
    ended: int | None = None
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        if pid == main:
            ended = raw


def _signal(target: int, number: int) -> None:
    try:
        os.kill(target, number)
    except ProcessLookupError:
        return


def _kill_descendants(once: bool = False) -> None:
    """Kill all descendants. ``once``: a single pass, since the caller reaps.

    As a subreaper this process inherits children of killed parents, so it repeats the pass.
    """
    if os.getpid() == 1:
        _signal_all()
        return
    while True:
        below = syscalls.descendants(os.getpid())
        if not below:
            return
        for pid in below:
            _signal(pid, signal.SIGKILL)
        if once:
            return  # the caller's loop reaps
        try:
            while os.waitpid(-1, 0)[0]:
                if not syscalls.children(os.getpid()):
                    break
        except ChildProcessError:
            return


def _signal_all() -> None:
    try:
        os.kill(-1, signal.SIGKILL)  # from pid 1: everything in the namespace but itself
    except ProcessLookupError:
        return


def _isolate(spec: dict[str, Any]) -> None:
    if spec.get("cgroup"):
        with open(os.path.join(spec["cgroup"], "cgroup.procs"), "w", encoding="ascii") as stream:
            stream.write("0")
    join = spec.get("join")
    if join:
        syscalls.enter(join["pid"], join["start_time"], tuple(n for n in join["namespaces"] if n != "user"))
    if not spec.get("mount_namespace"):
        return
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    wanted = [mounts.Mount(**record) for record in spec["mounts"]]
    try:
        mounts.perform(mounts.plan(wanted, mounts.MachineFileSystem()), spec["staging"])
    except OSError as error:
        raise Refused("mount", error) from None
    if os.getpid() == 1 or spec.get("target"):
        mounts.mount_proc()


def become(spec: dict[str, Any], errors: int, parent: int) -> NoReturn:
    """Become a process of the container: session, user, limits, working directory, then exec.

    The process ends with ``parent``. That is init, or the helper of a command that was started later
    (0 if the helper is outside of the pid namespace).
    """
    stage = "session"
    try:
        os.setsid()
        if spec.get("tty"):
            _control_terminal()
        stage = "limits"
        _limit(spec)
        stage = "user"
        _become_user(spec)
        # After the last change of user, which would clear it.
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(125)
        stage = "cwd"
        os.chdir(spec["cwd"])
        _reset_signals()
        stage = "exec"
        os.umask(spec.get("umask", 0o022))
        _first(spec["argv"], spec["env"], os.execve)
    except OSError as error:
        _report(errors, stage, error)
    except ValueError as error:  # for instance a NUL byte in an argument
        _report(errors, stage, OSError(errno.EINVAL, str(error)))
    os._exit(127)


def _control_terminal() -> None:
    """Make stdin the controlling terminal of the new session."""
    import fcntl  # rarely needed; shims start without it
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _limit(spec: dict[str, Any]) -> None:
    if spec.get("affinity"):
        os.sched_setaffinity(0, spec["affinity"])
    if spec.get("nice"):
        os.nice(spec["nice"])
    if spec.get("oom_score_adj") is not None:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream:
            stream.write(str(spec["oom_score_adj"]))


def _become_user(spec: dict[str, Any]) -> None:
    nested = spec.get("own_ids")
    if nested:  # root in the agent's user namespace: map the own ids again in a nested one
        outside_uid, outside_gid = os.geteuid(), os.getegid()
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        syscalls.map_own_ids(nested["uid"], nested["gid"], outside_uid, outside_gid)
        return
    if spec.get("groups") is not None:
        os.setgroups(spec["groups"])
    if spec.get("gid") is not None:
        os.setgid(spec["gid"])
    if spec.get("uid") is not None:
        os.setuid(spec["uid"])


def _reset_signals() -> None:
    """Reset blocked and ignored signals: both Python and the agent may have changed them."""
    for number in _resettable():
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _resettable() -> set[int]:
    return {*signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP, *_RESERVED}


_RESERVED = (32, 33)
"""Signals of the C library, which refuses to change them."""


def _first(
    argv: list[str], env: dict[str, str], execute: Callable[[str, list[str], dict[str, str]], int]
) -> int:
    """Execute the first such program of the ``PATH``, and return what ``execute`` returns.

    This searches as ``execvpe``, but distinguishes "not found" from "not permitted".
    """
    name = argv[0]
    if "/" in name:
        return execute(name, argv, env)
    refused: OSError | None = None
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        try:
            return execute(os.path.join(folder or ".", name), argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = refused or error
    raise refused or FileNotFoundError(2, "No such file or directory", name)
