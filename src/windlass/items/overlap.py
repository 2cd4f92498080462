"""Files that outputs would replace: the input of the batch, and files that no batch wrote. Both are refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from windlass.items import places as place_files
from windlass.items.inputs import input_path
from windlass.items.outputs import files_of, has_ids
from windlass.items.places import PlaceError, Places, state_of
from windlass.items.spec import BatchSpec

OUTPUT_IS_INPUT = "OutputIsInput"
"""Reason of a batch that would replace its own input."""
OUTPUT_IS_OCCUPIED = "OutputIsOccupied"
"""Reason of a batch that would replace a file that no batch wrote."""
_LOOKED_AT = 100
"""Number of rows of an existing file that are looked at."""


def same_file(one: Path | str, other: Path | str) -> bool:
    """Return whether two paths lead to one file or folder, also through links."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def prepare(places: Places, batch: BatchSpec, environment: Mapping[str, str]) -> None:
    """Create the folders of a batch, unless it would replace another file. Raises :class:`PlaceError`."""
    check_places(batch, places, environment)
    check_contents(places)
    place_files.prepare(places)


def check_places(batch: BatchSpec, places: Places, environment: Mapping[str, str]) -> None:
    """Raise :class:`PlaceError` if an output of a batch is its input."""
    given, dead = batch.input, batch.items.dead_letter_path
    source = input_path(given, environment)
    if source is not None and dead and same_file(source, dead):
        raise _replaced("spec.items.deadLetter.path", dead, str(source))
    for output, remote in ((places.output, places.remote), (places.branch, places.remote_branch)):
        if places.remote:
            if given.source == "s3" and given.url == remote:
                raise _replaced("spec.outputs.path", remote, given.url)
        elif source is not None and same_file(source, output):
            raise _replaced("spec.outputs.path", str(output), str(source))


def _replaced(field: str, target: str, source: str) -> PlaceError:
    through = "" if target == source else f", which is the file of the input {source}"
    text = (
        f"the outputs would replace the input: {field} leads to {target}{through}. "
        f"Nothing was written: give {field} another file"
    )
    return PlaceError(OUTPUT_IS_INPUT, text)


def check_contents(places: Places) -> None:
    """Raise :class:`PlaceError` if a file at the place of the outputs holds no row of a batch.

    Rows of outputs have an ``id``. Files with the state of a batch next to them are its own.
    """
    output = places.output
    if places.remote or places.state.is_dir() or not output.is_file() or not output.stat().st_size:
        return
    if any(islice(has_ids(output), _LOOKED_AT)):
        return
    text = (
        f"the outputs would replace {output}, which no generation job wrote: its rows have no id. Nothing was "
        f"written: move the file (mv {output} {output}.kept), or give spec.outputs.path (--output) another file"
    )
    raise PlaceError(OUTPUT_IS_OCCUPIED, text)


def earlier_files(batch: BatchSpec, places: Places, environment: Mapping[str, str]) -> list[Path]:
    """Return the other files of the folder of the outputs that a batch has written.

    Their names are those of outputs in a folder, such as ``outputs.csv``, or the state of the
    batch is next to them. Files of the input are left out.
    """
    if places.folder is None:
        return []
    source = input_path(batch.input, environment)
    own = {places.output, places.branch}
    found = [path for path in files_of(places.folder) if path not in own and _is_written(path)]
    return [path for path in found if source is None or not same_file(source, path)]


def written_files(batch: BatchSpec, places: Places, environment: Mapping[str, str]) -> list[Path]:
    """Return the files that a batch writes or has written, which are no rows of an input folder around them."""
    dead = batch.items.dead_letter_path
    own = [places.output, places.branch, *([Path(dead)] if dead else [])]
    return own + earlier_files(batch, places, environment)


def _is_written(path: Path) -> bool:
    return path.stem in ("outputs", "outputs.below") or state_of(path).is_dir()
