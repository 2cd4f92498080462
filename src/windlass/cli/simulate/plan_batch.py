"""``windlass plan --batch DIR``: a plan for every directory of DIR, in one process.

``DIR/<id>/options.json`` holds what a command line would (``files``, ``config``,
``now``, ``cycles`` or ``untilStable``). Paths are relative to the directory. The plan
is written to ``plan.json`` next to it, or the error to ``error.txt``.
"""

from __future__ import annotations

import traceback
from contextlib import suppress
from pathlib import Path

import msgspec

from windlass.api.errors import WindlassError
from windlass.cli import errors
from windlass.cli.output.formats import to_json
from windlass.cli.simulate.plan import INPUT_ERROR, PlanRequest, plan
from windlass.kits.timestamps import parse_rfc3339


class _Options(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    files: list[str]
    config: str = ""
    now: str = ""
    cycles: int = 1
    until_stable: bool = False


def run(directory: Path, now: float) -> tuple[int, int]:
    """Plan every directory in the order of names; return the numbers of plans and errors.

    Raises :class:`WindlassError` if ``directory`` is not a directory.

    :param now: time for directories without one
    """
    if not directory.is_dir():
        raise WindlassError(
            "WL-USE-400",
            f"{directory} is not a directory",
            evidence=f"looked in {Path.cwd()}",
            remedies=(f"ls {directory.parent}",),
        )
    planned = failed = 0
    for options in sorted(directory.glob("*/options.json")):
        if _plan_directory(options, now):
            planned += 1
        else:
            failed += 1
    return planned, failed


def _plan_directory(options: Path, now: float) -> bool:
    directory = options.parent
    for leftover in ("plan.json", "error.txt"):
        with suppress(FileNotFoundError):
            (directory / leftover).unlink()
    try:
        document = plan(_request(options, now), lambda _text: None)
    except WindlassError as error:
        (directory / "error.txt").write_text(errors.as_text(error), encoding="utf-8")
        return False
    except Exception:  # a defect in one plan must not affect the others; it is written in full
        (directory / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        return False
    (directory / "plan.json").write_text(to_json(document), encoding="utf-8")
    return True


def _request(options: Path, now: float) -> PlanRequest:
    try:
        given = msgspec.json.decode(options.read_bytes(), type=_Options)
        time = parse_rfc3339(given.now) if given.now else now
    except (msgspec.DecodeError, ValueError) as error:
        raise WindlassError(INPUT_ERROR, f"{options}: {error}") from error
    directory = options.parent
    return PlanRequest(
        files=[name if name == "-" else str(directory / name) for name in given.files],
        config=str(directory / given.config) if given.config else "",
        now=time,
        cycles=max(1, given.cycles),
        until_stable=given.until_stable,
    )
