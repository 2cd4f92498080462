"""Scripts: their interpreter, and why the kernel refuses to execute a file."""

from __future__ import annotations

import os
import shlex

_INTERPRETERS = {
    ".py": "python",
    ".sh": "bash",
    ".bash": "bash",
    ".r": "Rscript",
    ".jl": "julia",
    ".pl": "perl",
}
"""File name suffix of a script → the program that runs it."""
_FIRST_LINE_BYTES = 256
"""Maximum length of a script's first line in bytes, as far as the kernel reads it."""


def first_line(path: str) -> bytes | None:
    """Return the beginning of a file up to its first newline; ``None`` if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(_FIRST_LINE_BYTES).split(b"\n")[0]
    except OSError:
        return None


def interpreter(path: str) -> str:
    """Return the program that runs a script, by its first line or its name; empty if unknown."""
    return _program(first_line(path) or b"", path)


def _program(line: bytes, path: str) -> str:
    words = _interpreter(line)
    program = os.path.basename(words[0]) if words else ""
    if program == "env" and len(words) > 1:
        program = words[1]
    return program or _INTERPRETERS.get(os.path.splitext(path)[1].lower(), "")


def _interpreter(line: bytes) -> list[str]:
    return line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []


def exec_problem(path: str) -> tuple[str, tuple[str, ...]]:
    """Return why a file with execute permission cannot be executed, and remedies.

    Both are empty for a program, and for a file about which nothing is known.
    """
    line = first_line(path)
    if line is None:
        return "", ()
    quoted = shlex.quote(path)
    if words := _interpreter(line):
        if _ends_as_in_windows(line):
            return "its first line ends with a carriage return (Windows line ending)", (
                f"sed -i 's/\\r$//' {quoted}",
            )
        if os.path.isabs(words[0]) and not os.path.exists(words[0]):
            return f"its interpreter {words[0]} does not exist", (f"correct the first line of {path}",)
        return "", ()
    if line.startswith(b"#!") or not _is_text(line):
        return "", ()
    program = _program(line, path) or "sh"
    return "it is a script without a first line that names its interpreter", (
        f"sed -i '1i #!/usr/bin/env {program}' {quoted}",
    )


def has_carriage_return(path: str) -> bool:
    """Return whether the first line ends as in Windows. An interpreter does not understand the file then either."""
    return _ends_as_in_windows(first_line(path) or b"")


def _ends_as_in_windows(line: bytes) -> bool:
    return line.endswith(b"\r")


def _is_text(line: bytes) -> bool:
    try:
        return line.decode().replace("\t", "").rstrip("\r").isprintable()
    except UnicodeDecodeError:
        return False
