"""Reasons and messages for a container that could not be started."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from typing import Any

from windlass.node.runtime.scripts import exec_problem, interpreter

START_ERROR = "StartError"


def start_error(refusal: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[str, str]:
    """Return reason and message, with a remedy, of a failed step before exec."""
    stage, number = refusal.get("stage"), int(refusal.get("errno", 0))
    why = refusal.get("message", "")
    if stage == "exec":
        return START_ERROR, _exec_text(number, why, spec)
    if stage == "cwd":
        directory = spec.get("cwd", "")
        return START_ERROR, (
            f'the working directory "{directory}" cannot be entered: {why}; create it (mkdir -p {directory}) or '
            "set workingDir to one that exists on this machine"
        )
    if stage == "user":
        return START_ERROR, (
            f"the user of securityContext cannot be set: {why}; only an agent that runs as root can change users"
        )
    path = f" ({refusal['path']})" if refusal.get("path") else ""
    return "ContainerCannotRun", f"{stage}: {why}{path}"


def _exec_text(number: int, why: str, spec: Mapping[str, Any]) -> str:
    command = (spec.get("argv") or ["?"])[0]
    what = f'exec: "{command}":'
    path = _path_of(command, spec)
    problem, remedies = exec_problem(path) if path else ("", ())
    program = interpreter(path) if path else ""
    by_interpreter = [f"{program} {command}"] if program else []
    if number == errno.ENOENT and problem:
        return f"{what} {problem}; {'; or '.join(remedies)}"
    if number == errno.ENOENT and "/" not in command:
        return (
            f"{what} executable file not found in $PATH; install it, give its full "
            "path, or map the image to an environment that has it (windlass doctor shows the map)"
        )
    if number == errno.ENOENT:
        return (
            f"{what} no such file or directory (or its interpreter is missing); pods on this "
            "machine see the machine's own files, not those of an image"
        )
    if number == errno.EACCES and os.path.isdir(path):
        return f"{what} it is a directory; name a program in it"
    if number == errno.EACCES:
        return f"{what} permission denied; {'; or '.join([*by_interpreter, f'chmod +x {command}'])}"
    if number == errno.ENOEXEC:
        known = [*by_interpreter, *remedies] or ["it is not a program for this machine's processor"]
        return f"{what} exec format error{f' ({problem})' if problem else ''}; {'; or '.join(known)}"
    if number == errno.E2BIG:
        return (
            f"{what} argument list too long; the kernel limits arguments and environment together, "
            "and each of them to 128 KiB: pass long values in a file"
        )
    return f"{what} {why}"


def _path_of(command: str, spec: Mapping[str, Any]) -> str:
    """Return the file that ``command`` names on this machine; empty if there is none."""
    if "/" in command:
        path = os.path.join(spec.get("cwd") or "/", command)
        return path if os.path.exists(path) else ""
    return shutil.which(command, path=(spec.get("env") or {}).get("PATH", os.defpath)) or ""
