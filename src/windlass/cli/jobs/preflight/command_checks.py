"""Checks of the command of a job and of its working directory (in single-node mode)."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from windlass.api.errors import WindlassError
from windlass.node.runtime.scripts import exec_problem, has_carriage_return, interpreter


class CommandRequest(Protocol):
    """Request that names a program.

    ``command_line``: command of the user before ``--``, to repeat in remedies. ``workdir``: empty
    for the current directory.
    """

    @property
    def command(self) -> Sequence[str]: ...

    @property
    def workdir(self) -> str | None: ...

    @property
    def command_line(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ProgramOfRows:
    """Program of ``windlass generate``, which works in the current directory."""

    command: Sequence[str]
    command_line: str
    workdir: str | None = None


def check_command(request: CommandRequest, environ: Mapping[str, str]) -> None:
    """Check that the program exists and can be executed. Raises :class:`WindlassError`."""
    directory = Path(request.workdir or os.getcwd())
    if not directory.is_dir():
        raise WindlassError(
            "WL-RUN-404",
            f"the working directory {directory} does not exist",
            evidence=f"--workdir {request.workdir}",
            remedies=(f"{request.command_line} --workdir DIR -- …",),
        )
    program = request.command[0]
    if "/" not in program:
        found = shutil.which(program, path=environ.get("PATH", os.defpath))
        if found is None:
            raise _not_in_path(request, directory, environ.get("PATH", os.defpath))
        _check_file(request, Path(found))
        return
    path = directory / program
    if not path.exists():
        raise WindlassError(
            "WL-RUN-404",
            f"{program} cannot be started: the file does not exist",
            evidence=f"looked for {path}",
            remedies=(f"ls {shlex.quote(str(path.parent))}",),
        )
    _check_file(request, path)


def _check_file(request: CommandRequest, path: Path) -> None:
    """Check that the kernel executes a file that exists."""
    program = request.command[0]
    if path.is_dir():
        why, remedies = "it is a directory", (f"ls {shlex.quote(str(path))}",)
    else:
        why, remedies = exec_problem(str(path))
        if not os.access(path, os.X_OK):
            why = "it is not executable" + (f", and {why}" if why else "")
            remedies = remedies or (f"chmod +x {shlex.quote(str(path))}",)
    if not why:
        return
    raise WindlassError(
        "WL-RUN-404",
        f"{program} cannot be started: {why}",
        evidence=f"the file is {path}",
        remedies=(*_by_interpreter(request, path), *remedies),
    )


def _not_in_path(request: CommandRequest, directory: Path, path: str) -> WindlassError:
    program = request.command[0]
    file = directory / program
    remedies: Sequence[str] = (f"which {program}",)
    if file.is_file() and os.access(file, os.X_OK) and not exec_problem(str(file))[0]:
        remedies = (f"{request.command_line} -- {shlex.join([f'./{program}', *request.command[1:]])}",)
    elif file.is_file():
        remedies = _by_interpreter(request, file) or (f"chmod +x {shlex.quote(str(file))}",)
    return WindlassError(
        "WL-RUN-404", f'program "{program}" was not found', evidence=f"PATH is {path}", remedies=remedies
    )


def _by_interpreter(request: CommandRequest, path: Path) -> tuple[str, ...]:
    """Return the command line that starts a script by its interpreter, if that is known."""
    program = interpreter(str(path))
    if has_carriage_return(str(path)) or shutil.which(program) is None:
        return ()
    return (f"{request.command_line} -- {shlex.join([program, *request.command])}",)
