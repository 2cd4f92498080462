"""Folders as inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.items.inputs import open_rows
from windlass.items.rows import InputError
from windlass.items.spec import parse_batch


def test_folder_without_files_of_the_format_names_those_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,cup\n")
    spec = {"input": {"source": "file", "format": "jsonl", "path": str(tmp_path)}}
    batch = parse_batch({"metadata": {"name": "job"}, "spec": spec})
    with pytest.raises(InputError, match=r"jsonl or .ndjson or .json: spec.input.format is csv or dir"):
        list(open_rows(batch.input, {}, tmp_path / "scratch"))
