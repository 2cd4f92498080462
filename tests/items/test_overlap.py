"""Input and outputs at one place: refused as one file, and told apart in one folder."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from windlass.items.admission import BatchAdmission
from windlass.items.driver.service import Driver
from windlass.items.overlap import check_contents, check_places, prepare
from windlass.items.places import PlaceError, places_of
from windlass.items.spec import INPUT_MOUNT, BatchSpec, parse_batch
from windlass.kits.clock import SystemClock

ROWS = '{"id": "a", "name": "cup"}\n{"id": "b", "name": "mug"}\n'


def batch_of(given: dict[str, Any], output: Path | str) -> BatchSpec:
    spec = {"input": given, "outputs": {"path": str(output)}, "runtimeRef": {"name": "builtin-generate"}}
    return parse_batch({"metadata": {"name": "job", "uid": "u"}, "spec": spec})


@pytest.mark.parametrize("name", ["rows.jsonl", "link.jsonl", "hard.jsonl", "linked/rows.jsonl"])
def test_a_driver_does_not_replace_its_input(tmp_path: Path, name: str) -> None:
    rows = tmp_path / "data" / "rows.jsonl"
    rows.parent.mkdir()
    rows.write_text(ROWS)
    (rows.parent / "link.jsonl").symlink_to("rows.jsonl")
    (rows.parent / "hard.jsonl").hardlink_to(rows)
    (rows.parent / "linked").symlink_to(rows.parent)
    output = rows.parent / name
    before = sorted(rows.parent.iterdir())

    async def work() -> dict[str, Any]:
        driver = Driver(batch_of({"path": str(rows)}, output), {}, SystemClock())
        assert await driver.run() == 1
        return await driver.status()

    failure = asyncio.run(work())["failure"]
    assert failure["reason"] == "OutputIsInput"
    assert f"spec.outputs.path leads to {output}" in failure["message"]
    assert (sorted(rows.parent.iterdir()), rows.read_text()) == (before, ROWS)


def test_paths_of_one_claim_and_objects_are_compared(tmp_path: Path) -> None:
    (tmp_path / "claim").mkdir()
    (tmp_path / "mount").symlink_to("claim")
    (tmp_path / "claim" / "rows.jsonl").write_text(ROWS)
    environment = {INPUT_MOUNT: str(tmp_path / "mount")}
    claim = {"source": "pvc", "pvc": {"claimName": "data", "path": "/rows.jsonl"}}
    for given, output, refused in (
        (claim, tmp_path / "claim" / "rows.jsonl", True),
        (claim, tmp_path / "claim" / "out.jsonl", False),
        ({"url": "s3://shop/rows.jsonl"}, "s3://shop/rows.jsonl", True),
        ({"url": "s3://shop/outputs.jsonl"}, "s3://shop/", True),
        ({"url": "s3://shop/rows.jsonl"}, "s3://shop/out.jsonl", False),
        ({"inline": ROWS}, tmp_path / "claim" / "rows.jsonl", False),
        ({"path": str(tmp_path / "claim" / "x.below.jsonl")}, tmp_path / "claim" / "x.jsonl", True),
    ):
        batch = batch_of(given, output)
        try:
            check_places(batch, places_of(batch, environment), environment)
            found = False
        except PlaceError as error:
            found = error.reason == "OutputIsInput"
        assert found == refused, (given, output)


def test_rows_of_the_input_in_the_folder_of_the_outputs_are_worked_on(tmp_path: Path) -> None:
    rows = tmp_path / "in.jsonl"
    rows.write_text(ROWS)
    (tmp_path / "more.jsonl").write_text(ROWS)  # an input of another job
    (tmp_path / ".in.jsonl.windlass").mkdir()  # the output of an earlier job is the input of this one
    batch = batch_of({"path": str(rows)}, tmp_path)
    for taken_over in (0, 1):
        places = places_of(batch, {})
        prepare(places, batch, {})
        counts = BatchAdmission(batch, places, {}).run()
        assert (counts.total, counts.taken_over) == (2, taken_over)
        (tmp_path / "outputs.csv").write_text("id,text\na,Cup\n")  # of an earlier job with another format
    assert [json.loads(line)["id"] for line in rows.read_text().splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        ("out.jsonl", "notes\nof mine\n", True),
        ("out.jsonl", '{"name": "cup"}\n', True),
        ("out.csv", "name,price\ncup,3\n", True),
        ("out.jsonl", ROWS, False),
        ("out.jsonl", '{"id": "a", "error": "no answer"}\n', False),
        ("out.csv", "id,text\na,Cup\n", False),
        ("out.jsonl", "", False),
    ],
)
def test_a_file_that_no_batch_wrote_is_not_replaced(
    tmp_path: Path, name: str, text: str, refused: bool
) -> None:
    output = tmp_path / name
    output.write_text(text)
    batch = batch_of({"inline": ROWS}, output)
    places = places_of(batch, {})
    if not refused:
        prepare(places, batch, {})
        return
    with pytest.raises(PlaceError, match="which no generation job wrote") as problem:
        prepare(places, batch, {})
    assert problem.value.reason == "OutputIsOccupied"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    places.state.mkdir(parents=True)  # the batch that wrote it has ended without a row
    check_contents(places)


def test_dead_letters_do_not_replace_the_input(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(ROWS)
    for dead, refused in ((rows, True), (tmp_path / "dead.jsonl", False)):
        spec = {
            "input": {"path": str(rows)},
            "items": {"deadLetter": {"path": str(dead)}},
            "outputs": {"path": str(tmp_path / "out.jsonl")},
        }
        batch = parse_batch({"metadata": {"name": "job", "uid": "u"}, "spec": spec})
        try:
            prepare(places_of(batch, {}), batch, {})
            told = ""
        except PlaceError as error:
            told = str(error)
        assert (f"spec.items.deadLetter.path leads to {rows}" in told) == refused, told


@pytest.mark.parametrize("place", ["", "done/", "out.jsonl"])
def test_outputs_inside_the_input_folder_are_no_rows(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "fold"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("cup")
    output = f"{folder}/{place}"
    spec = {
        "input": {"path": str(folder), "format": "dir"},
        "items": {"deadLetter": {"path": str(folder / "dead.jsonl")}},
        "outputs": {"path": output},
        "runtimeRef": {"name": "builtin-generate"},
    }
    batch = parse_batch({"metadata": {"name": "job", "uid": "u"}, "spec": spec})
    places = places_of(batch, {})
    for taken_over in (0, 2):
        prepare(places, batch, {})
        counts = BatchAdmission(batch, places, {}).run()
        assert (counts.total, counts.taken_over) == (2, taken_over)
        for path in (places.output, places.branch):
            path.write_text('{"id": "a.txt", "text": "Cup"}\n{"id": "b.txt", "text": "Cup"}\n')
        (folder / "dead.jsonl").write_text("{}\n")


def test_outputs_inside_a_folder_of_row_files_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    batch = batch_of({"path": str(tmp_path)}, tmp_path / "sums.jsonl")
    places = places_of(batch, {})
    for _ in range(2):
        prepare(places, batch, {})
        assert BatchAdmission(batch, places, {}).run().total == 2
        places.output.write_text('{"id": "c", "text": "Cup"}\n')
