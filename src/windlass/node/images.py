"""Map from images to environments of this machine: read from a file, stored for the agent.

``windlass up --images FILE`` reads and validates it before anything starts. It is stored in the
agent's directory, so that a restarted agent uses the same map whatever became of the file.
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

STORED = "images.json"
_EXAMPLE = "pytorch/*: {venv: /opt/venvs/torch}"


def load(path: Path) -> dict[str, ImageEntry]:
    """Return the map of a YAML (or JSON) file, with absolute directories.

    ``~`` is the user's home, other paths are relative to the file. Raises :class:`WindlassError`
    (``WL-IMAGES-400``, ``-404``) that names file, entry and remedy.
    """
    from windlass.api.wire.yaml_text import YamlError, load_one

    try:
        record, duplicates = load_one(path.read_bytes())
    except OSError as error:
        raise WindlassError(
            "WL-IMAGES-404",
            f"the image map {path} cannot be read",
            evidence=error.strerror or str(error),
            remedies=(f"ls -l {path}", "windlass up --images FILE"),
        ) from error
    except (YamlError, UnicodeDecodeError) as error:
        raise _invalid(path, str(error)) from error
    if duplicates:
        raise _invalid(path, f"duplicate entries: {', '.join(duplicates)}")
    if not isinstance(record, Mapping):
        raise _invalid(path, "it must be a mapping from image names to entries")
    try:
        images = parse_images(record)
    except OptionError as error:
        raise _invalid(path, str(error)) from error
    return {image: _with_directories(path, image, entry) for image, entry in images.items()}


def _with_directories(path: Path, image: str, entry: ImageEntry) -> ImageEntry:
    directories = {}
    for name in ("path", "venv"):
        text = getattr(entry, name)
        if not text:
            continue
        directory = os.path.normpath(path.absolute().parent / os.path.expanduser(text))
        if not os.path.isdir(directory):
            raise _invalid(path, f"{image}: {name}: there is no directory {directory}", f"ls -ld {directory}")
        directories[name] = directory
    if "venv" in directories and not os.path.isdir(os.path.join(directories["venv"], "bin")):
        why = f"{image}: venv: {directories['venv']} is not a virtual environment: it has no directory bin"
        raise _invalid(path, why, f"python3 -m venv {directories['venv']}")
    return replace(entry, **directories)


def _invalid(path: Path, why: str, *remedies: str) -> WindlassError:
    return WindlassError(
        "WL-IMAGES-400",
        f"the image map {path} is not valid",
        evidence=why,
        remedies=(*remedies, f"correct it; an entry looks like   {_EXAMPLE}"),
    )


def encode(images: Mapping[str, ImageEntry]) -> dict[str, Any]:
    """Return the map as :func:`parse_images` takes it.

    Equal maps have equal results, also after a round trip through JSON.
    """
    encoded = {}
    for image, entry in images.items():
        record: dict[str, Any] = {key: value for key, value in asdict(entry).items() if value}
        if entry.command:
            record["command"] = list(entry.command)
        encoded[image] = record
    return encoded


def store(directory: Path, images: Mapping[str, ImageEntry]) -> None:
    """Write the map into the agent's directory. Without a map, remove the stored one."""
    if images:
        write_atomic(directory / STORED, json.dumps(encode(images), indent=1))
    else:
        unlink_if_exists(directory / STORED)


def load_stored(directory: Path) -> dict[str, ImageEntry]:
    """Return the map stored in the agent's directory. Raises :class:`WindlassError` if it is damaged."""
    try:
        return parse_images(json.loads((directory / STORED).read_bytes()))
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError) as error:
        raise _invalid(
            directory / STORED, str(error), "windlass down && windlass up --images FILE"
        ) from error
