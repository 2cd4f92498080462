"""Local files that decide what output rows say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from windlass.items.earlier import settings_of, taken_over
from windlass.items.ledger.database import LedgerFile
from windlass.items.program_files import MAX_BYTES, file_digests
from windlass.items.spec import BatchSpec, parse_batch


def batch(command: list[str], folder: Path, uid: str = "1", image: str = "", **spec: Any) -> BatchSpec:
    container = {"command": command, "workingDir": str(folder), **({"image": image} if image else {})}
    template = {"spec": {"containers": [container]}}
    body = {"input": {"inline": '{"id": 1}\n'}, "template": template, **spec}
    return parse_batch({"metadata": {"name": "job", "uid": uid}, "spec": body})


def test_files_of_commands_functions_scorers_and_models_are_found(tmp_path: Path) -> None:
    for name in ("answer.py", "shop.py", "model.gguf", "scores/judge.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    program = {"runtimeRef": {"name": "python", "function": "shop:describe"}}
    scorer = {"outputs": {"quality": {"scorer": "scores.judge:score"}}}
    cases: list[tuple[list[str], dict[str, Any], set[str]]] = [
        (["python3", "answer.py"], {}, {"program file"}),
        ([str(tmp_path / "answer.py")], {}, {"program file"}),
        (["answer.py"], {}, set()),  # a program of the search path
        (["cat", "-", "no\0path", "x" * 5000, ""], {}, set()),
        ([], program, {"program file"}),
        ([], {"runtimeRef": {"name": "python", "function": "absent:f"}}, set()),
        (["cat"], scorer, {"scorer file"}),
        (["cat"], {"outputs": {"quality": {"scorer": "length"}}}, set()),
        ([], {"model": {"name": "m", "source": (tmp_path / "model.gguf").as_uri()}}, {"model file"}),
    ]
    for command, spec, names in cases:
        made = batch(command, tmp_path, **spec)
        before = file_digests(made)
        assert set(before) == names, (command, spec)
        assert file_digests(made) == before
        for name in ("answer.py", "shop.py", "model.gguf", "scores/judge.py"):
            (tmp_path / name).write_text((tmp_path / name).read_text() + "#")
        after = file_digests(made)
        assert {name for name in before if before[name] != after[name]} == names, (command, spec)


def test_large_files_are_told_by_size_and_time(tmp_path: Path) -> None:
    with (tmp_path / "model.gguf").open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    made = batch([], tmp_path, model={"name": "big", "source": (tmp_path / "model.gguf").as_uri()})
    before = file_digests(made)
    with (tmp_path / "model.gguf").open("r+b") as stream:
        stream.truncate(MAX_BYTES + 2)
    assert file_digests(made) != before


def test_rows_of_an_edited_program_or_another_image_are_told(tmp_path: Path) -> None:
    def changed(uid: str, image: str = "") -> list[str]:
        made = batch(["python3", "answer.py"], tmp_path, uid, image)
        record = taken_over(tmp_path / "ledger", made, 1, tmp_path / "out")
        ledger = LedgerFile(tmp_path / "ledger.new", create=True)
        ledger.set_meta(uid=uid, settings=json.dumps(settings_of(made)), taken_over=json.dumps({}))
        ledger.seal(tmp_path / "ledger")
        ledger.close()
        return record["changed"]

    program = tmp_path / "answer.py"
    program.write_text("print(1)")
    assert changed("1") == []  # nothing is known of the earlier rows
    assert changed("2") == []
    program.write_text("print(2)")
    assert changed("3") == ["program file"]
    assert changed("4", "shop:1") == []
    assert changed("5", "shop:2") == ["image"]
