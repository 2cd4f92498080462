"""Fetch a model into the cache folder of this node: the program of a fetching pod."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from windlass.kits.clock import SystemClock
from windlass.kits.files import write_named
from windlass.modelcache.eviction import FREE_FLOOR
from windlass.modelcache.fetch import fetch
from windlass.modelcache.folder import CacheFolder, ModelCacheError, ModelReference

PROGRESS_EVERY = 1.0
"""Seconds between two lines of progress."""
TERMINATION_LOG = "/dev/termination-log"
"""Path of a container's termination message in Kubernetes, unless the pod names another."""


def main(arguments: list[str]) -> int:
    """Run one command; the exit code is 1 when the model cannot be had."""
    given = _parser().parse_args(arguments)
    model = ModelReference(given.name, given.source, given.revision, given.sha256)
    began = SystemClock().monotonic()
    try:
        found = fetch(CacheFolder(given.root), model, pin=given.pin, floor=given.floor, progress=_Printer())
    except ModelCacheError as error:
        _tell({"key": model.key, "reason": error.reason, "message": str(error)}, given.result)
        return 1
    seconds = round(SystemClock().monotonic() - began, 3)
    _tell(
        {
            "key": model.key,
            "bytes": found.model.bytes,
            "sha256": found.model.sha256,
            "reused": found.reused,
            "evicted": list(found.evicted),
            "seconds": seconds,
        },
        given.result,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m windlass.modelcache", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="cache folder of the node")
    parser.add_argument("--name", required=True, help="name of the model")
    parser.add_argument("--source", required=True, help="URI: hf://, https://, file://")
    parser.add_argument("--revision", default="", help="branch, tag or commit")
    parser.add_argument("--sha256", default="", help="expected checksum")
    parser.add_argument("--pin", action="store_true", help="never remove the model to make room")
    parser.add_argument(
        "--floor", type=float, default=FREE_FLOOR, help="part of the file system that stays free"
    )
    parser.add_argument("--result", type=Path, default=None, help="file of the result, as JSON")
    return parser


class _Printer:
    """Progress as lines on standard output, at most one a second."""

    def __init__(self) -> None:
        self._clock, self._last = SystemClock(), 0.0

    def __call__(self, done: int, total: int | None) -> None:
        now = self._clock.monotonic()
        if now - self._last >= PROGRESS_EVERY:
            self._last = now
            print(f"{done} of {total or '?'} bytes", flush=True)


def _tell(result: dict[str, object], path: Path | None) -> None:
    text = json.dumps(result)
    print(text, flush=True)
    target = path or (Path(TERMINATION_LOG) if os.path.exists(TERMINATION_LOG) else None)
    if target is not None:
        write_named(target, text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
