"""What a rank of a chaos gang runs: it proves by file locks that it is alone.

Holds an exclusive lock on its pod (no process is ever started twice) and on each device that it was
given (no device is ever given twice) for as long as it lives; anything else is a violation, written
down for the harness. Arguments: evidence folder, seconds to run.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

Held = list[int]


def claim(path: Path, who: str, violations: Path, held: Held) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = os.read(descriptor, 200).decode()
        with violations.open("a") as stream:
            stream.write(f"{path.name} is held by {other} and was given to {who}\n")
        return
    os.ftruncate(descriptor, 0)
    os.write(descriptor, who.encode())
    held.append(descriptor)


def main() -> int:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    who = f"{os.environ['POD_NAME']}/{os.environ['POD_UID']} pid {os.getpid()}"
    violations, held = folder / "violations", []
    claim(folder / f"pod-{os.environ['POD_UID']}", who, violations, held)
    for device in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","):
        claim(folder / f"device-{device or 'none'}", who, violations, held)
    with (folder / "starts").open("a") as stream:
        stream.write(f"{os.environ['POD_UID']} {os.environ['POD_NAME']}\n")
    time.sleep(seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
