"""``windlass plan --batch DIR``: every folder of DIR in one process.

``DIR/<id>/options.json`` says what a command line would (``files``, ``config``, ``now``, ``cycles`` or
``untilStable``; paths are relative to the folder). The plan is left in ``plan.json`` beside it, or the
error in ``error.txt``.
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


def run(folder: Path, now: float) -> tuple[int, int]:
    """Plan every folder in name order. ``now``: for those that name no time. Returns the numbers of plans
    and of errors. Raises :class:`WindlassError` if ``folder`` is none."""
    if not folder.is_dir():
        raise WindlassError(
            "WL-USE-400",
            f"{folder} is no folder",
            evidence=f"looked in {Path.cwd()}",
            remedies=(f"ls {folder.parent}",),
        )
    planned = failed = 0
    for options in sorted(folder.glob("*/options.json")):
        if _one(options, now):
            planned += 1
        else:
            failed += 1
    return planned, failed


def _one(options: Path, now: float) -> bool:
    folder = options.parent
    for leftover in ("plan.json", "error.txt"):
        with suppress(FileNotFoundError):
            (folder / leftover).unlink()
    try:
        document = plan(_request(options, now), lambda _text: None)
    except WindlassError as error:
        (folder / "error.txt").write_text(errors.as_text(error), encoding="utf-8")
        return False
    except Exception:  # a defect in one plan must not cost the others theirs; it is told in full
        (folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        return False
    (folder / "plan.json").write_text(to_json(document), encoding="utf-8")
    return True


def _request(options: Path, now: float) -> PlanRequest:
    try:
        given = msgspec.json.decode(options.read_bytes(), type=_Options)
        moment = parse_rfc3339(given.now) if given.now else now
    except (msgspec.DecodeError, ValueError) as error:
        raise WindlassError(INPUT_ERROR, f"{options}: {error}") from error
    folder = options.parent
    return PlanRequest(
        files=[name if name == "-" else str(folder / name) for name in given.files],
        config=str(folder / given.config) if given.config else "",
        now=moment,
        cycles=max(1, given.cycles),
        until_stable=given.until_stable,
    )
