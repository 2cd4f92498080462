"""Checks of a file of rows before a job is made: that it has rows, and the named columns."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import shlex
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.api.errors import WindlassError
from windlass.cli.generation.remedies import again

if TYPE_CHECKING:
    from windlass.cli.generation.manifest import GenerationRequest
    from windlass.items.rows import Row

_HEAD_BYTES = 1 << 20
"""Number of bytes of a file that are read to learn its columns."""
_HEAD_ROWS = 1000
"""Maximum number of rows that are read to learn which columns have no value twice."""


def check_rows(request: GenerationRequest, path: str, form: str) -> None:
    """Raise :class:`WindlassError` for a file without rows, a prompt, or a column that is named."""
    if form not in ("csv", "jsonl", "dir") or path.endswith(".gz"):
        return
    from windlass.items.prompts import PromptError
    from windlass.items.rows import InputError

    try:
        first = _first(path, form)
        columns = set(first.values) if first is not None else set()
        missing = _missing(request, columns) if columns and form != "dir" else None
    except PromptError as error:
        raise WindlassError("WL-GENERATE-400", f"--prompt is not valid: {error}") from None
    except (InputError, OSError) as error:
        raise WindlassError(
            "WL-GENERATE-400", f"{path}: {error}", remedies=(f"head -c 300 {shlex.quote(path)}",)
        ) from None
    if first is None and (form == "dir" or os.path.getsize(path) <= _HEAD_BYTES):
        raise _empty(path, form)
    if missing is not None:
        raise _missing_column(request, path, form, columns, *missing)
    if columns and _has_no_prompt(request, columns):
        raise _no_prompt(request, path, columns)


def _first(path: str, form: str) -> Row | None:
    from windlass.items.rows import read, read_folder

    if form == "dir":
        return next(read_folder(Path(path)), None)
    with open(path, "rb") as stream:
        return next(iter(read(form, io.BytesIO(stream.read(_HEAD_BYTES)))), None)


def _unique(path: str, form: str, names: list[str]) -> list[str]:
    """Return the columns that can be ids: each of the first rows has a value of its own there."""
    from windlass.items.rows import InputError, read

    rows: list[Row] = []
    with contextlib.suppress(InputError, OSError), open(path, "rb") as stream:
        rows.extend(islice(read(form, stream), _HEAD_ROWS))
    good = [row.values for row in rows if not row.error]
    return [
        name
        for name in names
        if len({str(values[name]) for values in good if _is_id(values.get(name))}) == len(good)
    ]


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _missing(request: GenerationRequest, columns: set[str]) -> tuple[str, str] | None:
    """Return flag and name of the first column that the rows do not have."""
    from windlass.items.expressions import is_field
    from windlass.items.prompts import Prompt

    wanted = [("--prompt", name) for name in Prompt(request.prompt).missing(columns | {"id"})]
    if request.id_field and request.id_field not in columns:
        wanted.append(("--id", request.id_field))
    group = request.group_by
    if group and is_field(group) and group not in columns | {"id"}:
        wanted.append(("--group-by", group))
    return wanted[0] if wanted else None


def _has_no_prompt(request: GenerationRequest, columns: set[str]) -> bool:
    """Return whether a model would get an empty prompt. A program or a function gets the whole row."""
    program = request.function or request.command or request.runtime in ("process", "python")
    return not (program or request.prompt or columns & {"prompt", "messages", "body"})


def _no_prompt(request: GenerationRequest, path: str, columns: set[str]) -> WindlassError:
    names = sorted(map(str, columns - {"id"})) or ["id"]
    return WindlassError(
        "WL-GENERATE-422",
        f"there is no --prompt, and the rows of {path} have no column prompt",
        evidence=f"columns: {', '.join(sorted(map(str, columns)))}",
        remedies=(again(request, prompt=f"Describe {{{names[0]}}}"),),
    )


def _missing_column(
    request: GenerationRequest, path: str, form: str, columns: set[str], flag: str, name: str
) -> WindlassError:
    names = sorted(map(str, columns))
    candidates = names
    if flag == "--id":  # a job with ids that are not unique fails
        candidates = sorted(_unique(path, form, names), key=lambda one: one != "id") or [""]
    near = (difflib.get_close_matches(name, candidates, 1) or candidates)[0]
    changed = {
        "--prompt": {"prompt": request.prompt.replace(f"{{{name}}}", f"{{{near}}}")},
        "--id": {"id_field": near},
        "--group-by": {"group_by": near},
    }
    return WindlassError(
        "WL-GENERATE-422",
        f"{flag} names the column {name}, and the rows of {path} do not have it",
        evidence=f"columns: {', '.join(names)}",
        remedies=(f"head -2 {shlex.quote(path)}", again(request, **changed[flag])),
    )


def _empty(path: str, form: str) -> WindlassError:
    what, look = ("folder", "ls -lA") if form == "dir" else ("file", "head -2")
    lines = {
        "csv": "the first line of a CSV file names its columns, and each further line is a row",
        "jsonl": "each line of a JSON Lines file is a row: a JSON object",
        "dir": "each file of a folder is a row; names that begin with a dot are left out",
    }
    return WindlassError(
        "WL-GENERATE-422",
        f"the {what} {path} has no row",
        evidence=lines[form],
        remedies=(f"{look} {shlex.quote(path)}",),
    )
