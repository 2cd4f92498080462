"""Messages for a container that could not be started."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from windlass.node.runtime.start_errors import start_error


@pytest.mark.parametrize(
    ("content", "mode", "number", "parts"),
    [
        (
            b"print(1)\n",
            0o755,
            errno.ENOEXEC,
            ("exec format error", "python ./a.py", "1i #!/usr/bin/env python'"),
        ),
        (b"#!/no/such/python\n", 0o755, errno.ENOENT, ("its interpreter /no/such/python does not exist",)),
        (b"#!/bin/sh\r\necho\r\n", 0o755, errno.ENOENT, ("carriage return", "sed -i 's/\\r$//'")),
        (
            b"#!/usr/bin/env python3\n",
            0o644,
            errno.EACCES,
            ("permission denied", "python3 ./a.py", "chmod +x"),
        ),
        (b"\x7fELF\x02", 0o755, errno.ENOEXEC, ("exec format error", "processor")),
        (b"#!/bin/sh\n", 0o755, errno.E2BIG, ("argument list too long", "128 KiB")),
        (None, 0, errno.ENOENT, ("no such file or directory",)),
    ],
)
def test_message_says_what_is_wrong_with_the_file(
    tmp_path: Path, content: bytes | None, mode: int, number: int, parts: tuple[str, ...]
) -> None:
    name = "a" if content is not None and content.startswith(b"\x7f") else "a.py"
    if content is not None:
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(mode)
    spec: dict[str, Any] = {"argv": [f"./{name}"], "cwd": str(tmp_path), "env": {}}
    reason, message = start_error({"stage": "exec", "errno": number, "message": os.strerror(number)}, spec)
    assert reason == "StartError"
    assert [part for part in parts if part not in message] == [], message


def test_interpreter_of_a_program_in_path_is_missing(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/no/such/python\n")
    (tmp_path / "tool").chmod(0o755)
    spec = {"argv": ["tool"], "cwd": "/", "env": {"PATH": str(tmp_path)}}
    _, message = start_error({"stage": "exec", "errno": errno.ENOENT, "message": ""}, spec)
    assert message.startswith('exec: "tool": its interpreter /no/such/python does not exist')
