"""Files that people name: what is wrong with them, and what to do."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from windlass.api.errors import WindlassError
from windlass.api.text_files import FileCodes, read_stdin, read_text

CODES = FileCodes("WL-X-400", unreadable="WL-X-403")


def test_text_is_read_as_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("größe: 1\n".encode())
    assert read_text(str(tmp_path / "a"), CODES) == "größe: 1\n"


@pytest.mark.parametrize(
    ("name", "code", "words", "remedy"),
    [
        ("missing", "WL-USE-400", "does not exist", "ls {folder}"),
        ("lattin", "WL-USE-400", "does not exist", "did you mean {folder}/latin?"),
        ("latin", "WL-X-400", "is not text in UTF-8", "iconv -f latin1 -t utf-8 {folder}/latin"),
        ("folder", "WL-X-403", "cannot be read", "ls -ld {folder}/folder"),
    ],
)
def test_unreadable_file_is_reported(tmp_path: Path, name: str, code: str, words: str, remedy: str) -> None:
    (tmp_path / "latin").write_bytes("größe".encode("latin-1"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(WindlassError) as told:
        read_text(str(tmp_path / name), CODES)
    assert (told.value.code, told.value.message) == (code, f"{tmp_path / name} {words}")
    assert remedy.format(folder=tmp_path) in told.value.remedies


@pytest.mark.parametrize("locale", ["utf-8", "ascii", "latin-1"])
def test_standard_input_is_utf_8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch, locale: str) -> None:
    piped = io.TextIOWrapper(io.BytesIO("größe: 1\r\n".encode()), encoding=locale, errors="surrogateescape")
    monkeypatch.setattr(sys, "stdin", piped)
    assert read_stdin(CODES) == "größe: 1\n"


def test_unreadable_standard_input_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.TextIOWrapper(io.BytesIO(b"a: \xff"), encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr(sys, "stdin", piped)
    with pytest.raises(WindlassError, match="standard input is not text in UTF-8"):
        read_stdin(CODES)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(WindlassError, match="standard input is closed"):
        read_stdin(CODES)
