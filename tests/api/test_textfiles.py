"""Files that people name: what is wrong with them, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.api.errors import WindlassError
from windlass.api.textfiles import read_text


def test_text_is_read_as_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("größe: 1\n".encode())
    assert read_text(str(tmp_path / "a"), "WL-X-400") == "größe: 1\n"


@pytest.mark.parametrize(
    ("name", "code", "words", "remedy"),
    [
        ("missing", "WL-USE-400", "does not exist", "ls {folder}"),
        ("latin", "WL-X-400", "is not text in UTF-8", "iconv -f latin1 -t utf-8 {folder}/latin"),
        ("folder", "WL-USE-400", "cannot be read", "ls -ld {folder}/folder"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, name: str, code: str, words: str, remedy: str) -> None:
    (tmp_path / "latin").write_bytes("größe".encode("latin-1"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(WindlassError) as told:
        read_text(str(tmp_path / name), "WL-X-400")
    assert (told.value.code, told.value.message) == (code, f"{tmp_path / name} {words}")
    assert remedy.format(folder=tmp_path) in told.value.remedies
