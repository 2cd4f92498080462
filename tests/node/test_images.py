"""The image map: what a file may say, and what is told about one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.api.errors import WindlassError
from windlass.node.images import encode, load, load_stored, store
from windlass.node.options import ImageEntry, parse_images


def written(folder: Path, text: str) -> Path:
    path = folder / "images.yaml"
    path.write_text(text)
    return path


def test_a_map_is_read_with_its_folders_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "home" / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "tool").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    text = "torch:*: {venv: ~/venv, env: {A: 1, B: 'yes'}}\nlab/tool:\n  path: tool\n  command: [run, me]\n"
    assert load(written(tmp_path, text)) == {
        "torch:*": ImageEntry(venv=str(tmp_path / "home" / "venv"), env={"A": "1", "B": "yes"}),
        "lab/tool": ImageEntry(path=str(tmp_path / "tool"), command=("run", "me")),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be a mapping"),
        ("- a", "must be a mapping"),
        ("a: {env: {A: 1}}\nb: [", "line "),
        ("a: {env: {A: 1}}\na: {env: {A: 2}}", "duplicate entries: a"),
        ("a: /opt", "a: must be a mapping"),
        ("a: {}", "a: the entry is empty"),
        ("a: {image: b}", "a: unknown image"),
        ("a: {path: [x]}", "a: path: must be a directory"),
        ("a: {path: nowhere}", "a: path: there is no directory"),
        ("a: {venv: .}", "a: venv: "),
        ("a: {env: [x]}", "a: env: must be a mapping"),
        ("a: {env: {FLAG: true}}", "a: env: FLAG: must be text or a number; put the value in quotes"),
        ("a: {command: [1]}", "a: command: must be text"),
    ],
)
def test_error_of_an_invalid_map_has_file_entry_and_remedy(tmp_path: Path, text: str, why: str):
    path = written(tmp_path, text)
    with pytest.raises(WindlassError) as caught:
        load(path)
    assert caught.value.code == "WL-IMAGES-400"
    assert str(path) in caught.value.message
    assert why in caught.value.evidence
    assert caught.value.remedies


def test_a_map_that_is_not_there(tmp_path: Path):
    with pytest.raises(WindlassError) as caught:
        load(tmp_path / "none.yaml")
    assert (caught.value.code, caught.value.evidence) == ("WL-IMAGES-404", "No such file or directory")


def test_what_is_kept_is_what_was_read(tmp_path: Path):
    images = {"a": ImageEntry("/p", "/v", {"K": "1"}, ("x", "y")), "b*": ImageEntry(venv="/w")}
    assert parse_images(encode(images)) == images
    store(tmp_path, images)
    assert load_stored(tmp_path) == images
    store(tmp_path, {})
    assert load_stored(tmp_path) == {}
    (tmp_path / "images.json").write_text("[")
    with pytest.raises(WindlassError):
        load_stored(tmp_path)
