"""The users' own manifests, read where they lie; the folder is not part of the project."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "acceptance"


def folder() -> Path:
    """The folder with the manifests; skips the test by name where it is not there."""
    if not (FOLDER / "expect.json").exists():
        pytest.skip("the users' acceptance manifests are not here; tests of examples/ cover the same ground")
    return FOLDER


def expectation(number: int) -> dict[str, Any]:
    entries = json.loads((folder() / "expect.json").read_text())
    return next(entry for entry in entries if entry["id"] == f"Y{number}")


def manifest_path(number: int) -> Path:
    return folder() / expectation(number)["file"]


def documents(number: int) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(manifest_path(number).read_text()) if document]


def merged(*fragments: int) -> dict[str, Any]:
    """The pod of manifest 02 with the fragments merged into it."""
    (pod,) = documents(2)
    for number in fragments:
        for document in documents(number):
            pod = _merge(pod, document)
    return pod


def _merge(base: Any, patch: Any) -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        return {key: _merge(base.get(key), patch.get(key, base.get(key))) for key in {**base, **patch}}
    return patch if patch is not None else base


def expected_warnings(number: int) -> list[str]:
    """The texts of ``expect.json``, with its "as above" written out."""
    entry = expectation(number)
    texts: list[str] = []  # without the words that only make sense to a reader of the manifests' source
    for text in entry["warnings"]:
        if text.endswith("as above"):
            text = text.removesuffix("as above") + texts[0].split(" -> ", 1)[1]
        text = text.partition(", although the seed")[0]
        texts.append(text.removesuffix(" (second document only)"))
    return texts


def same(warning: str, expected: str) -> bool:
    """Whether a warning is the promised one; it may name the pod, and go on where the text ends."""
    return warning.startswith(expected) or re.sub(r" of Pod \S+", "", warning).startswith(expected)


def all_there(warnings: list[str], expected: list[str]) -> bool:
    """One warning for each promised text, and no other."""
    return len(warnings) == len(expected) and all(any(same(w, text) for w in warnings) for text in expected)
