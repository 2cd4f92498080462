"""The map from images to what stands for them on this machine: read from a file, kept for the agent.

``windlass up --images FILE`` reads it once, with all its errors, before anything starts; what was read is
kept in the agent's folder, so that an agent that is started again uses the same map, whatever became of the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from windlass.api.errors import WindlassError
from windlass.kits.files import unlink_if_exists, write_atomic
from windlass.node.options import ImageEntry, OptionError, parse_images

KEPT = "images.json"
_EXAMPLE = "pytorch/*: {venv: /opt/venvs/torch}"


def load(path: Path) -> dict[str, ImageEntry]:
    """The map in a YAML (or JSON) file. Folders are made absolute: ``~`` is the user's home, others are
    relative to the file's folder.

    Raises :class:`WindlassError` (``WL-IMAGES-400``, ``-404``) that names file, entry and remedy.
    """
    from windlass.api.wire.yaml_text import YamlError, load_one

    try:
        record, twice = load_one(path.read_bytes())
    except OSError as error:
        raise WindlassError(
            "WL-IMAGES-404",
            f"the image map {path} cannot be read",
            evidence=error.strerror or str(error),
            remedies=(f"ls -l {path}", "windlass up --images FILE"),
        ) from error
    except (YamlError, UnicodeDecodeError) as error:
        raise _wrong(path, str(error)) from error
    if twice:
        raise _wrong(path, f"{', '.join(twice)}: stands there twice")
    if not isinstance(record, Mapping):
        raise _wrong(path, "it must be a mapping from image names to entries")
    try:
        found = parse_images(record)
    except OptionError as error:
        raise _wrong(path, str(error)) from error
    return {image: _with_folders(path, image, entry) for image, entry in found.items()}


def _with_folders(path: Path, image: str, entry: ImageEntry) -> ImageEntry:
    folders = {}
    for name in ("path", "venv"):
        text = getattr(entry, name)
        if not text:
            continue
        folder = os.path.normpath(path.absolute().parent / os.path.expanduser(text))
        if not os.path.isdir(folder):
            raise _wrong(path, f"{image}: {name}: there is no folder {folder}", f"ls -ld {folder}")
        folders[name] = folder
    if "venv" in folders and not os.path.isdir(os.path.join(folders["venv"], "bin")):
        why = f"{image}: venv: {folders['venv']} is no virtual environment (it has no folder bin)"
        raise _wrong(path, why, f"python3 -m venv {folders['venv']}")
    return replace(entry, **folders)


def _wrong(path: Path, why: str, *remedies: str) -> WindlassError:
    return WindlassError(
        "WL-IMAGES-400",
        f"the image map {path} is not right",
        evidence=why,
        remedies=(*remedies, f"correct it; an entry looks like   {_EXAMPLE}"),
    )


def encode(images: Mapping[str, ImageEntry]) -> dict[str, Any]:
    """The map as :func:`parse_images` takes it; equal maps are equal here, also after a way through JSON."""
    found = {}
    for image, entry in images.items():
        record = {key: value for key, value in asdict(entry).items() if value}
        if entry.command:
            record["command"] = list(entry.command)
        found[image] = record
    return found


def keep(folder: Path, images: Mapping[str, ImageEntry]) -> None:
    """Write the map into the agent's folder; without one, remove what an earlier start left there."""
    if images:
        write_atomic(folder / KEPT, json.dumps(encode(images), indent=1))
    else:
        unlink_if_exists(folder / KEPT)


def kept(folder: Path) -> dict[str, ImageEntry]:
    """The map that lies in the agent's folder. Raises :class:`WindlassError` when it is damaged."""
    try:
        return parse_images(json.loads((folder / KEPT).read_bytes()))
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError) as error:
        raise _wrong(folder / KEPT, str(error), "windlass down && windlass up --images FILE") from error
