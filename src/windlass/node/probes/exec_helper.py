"""Helper process that runs the command of a probe or lifecycle hook inside a running container.

It joins the namespaces and the cgroup of the container's init. The command gets the
environment, user, limits and working directory of the container's own command. It ends with
this helper.
"""

from __future__ import annotations

import json
import os
import select
import signal
from typing import Any, NoReturn

from windlass.kits import monotonic
from windlass.node.runtime import attempt_files, container_init
from windlass.node.runtime.container_entry import enter_container

OUTPUT_BYTES = 10 * 1024
"""Maximum output of a command in bytes that is retained (as in the kubelet)."""


def main(text: str) -> int:
    """Run the command and print the result as JSON.

    Result: ``{"code", "output"}``, ``{"timed_out": true}`` or ``{"error": why}``.
    ``text``: ``{"folder": of the attempt, "command": its name in the record, "timeout": seconds or
    null}``.
    """
    request = json.loads(text)
    try:
        result = _run(request["folder"], request["command"], request["timeout"])
    except OSError as error:
        result = {"error": str(error)}
    os.write(1, json.dumps(result).encode())
    return 0


def _run(folder: str, name: str, timeout: float | None) -> dict[str, Any]:
    spec, init = (
        attempt_files.read(folder, attempt_files.SPEC),
        attempt_files.read(folder, attempt_files.PROCESS),
    )
    argv = ((spec or {}).get("commands") or {}).get(name)
    if spec is None or init is None or not argv:
        return {"error": f"the container has no command for {name}"}
    wake, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    enter_container(spec, init)
    output, output_write = os.pipe2(os.O_CLOEXEC)
    errors, errors_write = os.pipe2(os.O_CLOEXEC)
    parent = 0 if spec.get("pid_namespace") else os.getpid()  # as the command sees it
    child = os.fork()
    if child == 0:
        _run_command({**spec, "argv": argv}, output_write, errors_write, parent)
    os.close(output_write)
    os.close(errors_write)
    refusal = b""
    while block := os.read(errors, 65536):
        refusal += block
    if refusal:
        os.waitpid(child, 0)
        failure = json.loads(refusal)
        return {"error": f'{failure["stage"]}: "{argv[0]}": {failure["message"]}'}
    return _wait(child, output, wake, timeout)


def _run_command(spec: dict[str, Any], output: int, errors: int, parent: int) -> NoReturn:
    signal.set_wakeup_fd(-1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    container_init.become({**spec, "tty": False}, errors, parent)


def _wait(child: int, output: int, wake: int, timeout: float | None) -> dict[str, Any]:
    """Wait until the command ends. Kill it at the timeout."""
    due = None if timeout is None else monotonic.monotonic() + timeout
    os.set_blocking(output, False)
    collected = bytearray()
    poller = select.poll()
    poller.register(output, select.POLLIN)
    poller.register(wake, select.POLLIN)
    while True:
        left = None if due is None else max(0.0, due - monotonic.monotonic())
        for descriptor, _ in poller.poll(None if left is None else left * 1000):
            if descriptor == wake:
                os.read(wake, 512)
            elif not _read_output(output, collected):
                poller.unregister(output)
        ended, raw = os.waitpid(child, os.WNOHANG)
        if ended:
            _read_output(output, collected)
            return {"code": os.waitstatus_to_exitcode(raw), "output": collected.decode(errors="replace")}
        if due is not None and monotonic.monotonic() >= due:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"timed_out": True}


def _read_output(output: int, collected: bytearray) -> bool:
    """Read the available output and retain its beginning. Return False at the end of the stream."""
    try:
        data = os.read(output, 65536)
    except BlockingIOError:
        return True
    collected += data[: OUTPUT_BYTES - len(collected)]
    return bool(data)
