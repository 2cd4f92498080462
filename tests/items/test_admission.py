"""Admission: sources of rows, ids, groups, order, and outputs that are taken over."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from windlass.items.admission import Admitted, BatchAdmission
from windlass.items.ledger.changes import ItemState
from windlass.items.ledger.database import LedgerFile, Stored
from windlass.items.places import places_of, prepare
from windlass.items.rows import InputError
from windlass.items.spec import BatchSpec, parse_batch


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


def batch_of(tmp_path: Path, **spec: Any) -> BatchSpec:
    spec.setdefault("outputs", {"path": str(tmp_path / "out.jsonl")})
    return parse_batch({"metadata": {"name": "job", "uid": "u"}, "spec": spec})


def admit(batch: BatchSpec, environment: dict[str, str] | None = None) -> tuple[Admitted, LedgerFile, Stored]:
    places = places_of(batch, environment or {})
    prepare(places)
    counts = BatchAdmission(batch, places, environment or {}).run()
    ledger = LedgerFile(places.ledger)
    return counts, ledger, ledger.load()


def ids_of(batch: BatchSpec, environment: dict[str, str] | None = None) -> list[str | int]:
    _, ledger, _ = admit(batch, environment)
    found = [name for _, name in sorted(ledger.ids())]
    ledger.close()
    return found


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "web").mkdir()
    handler = partial(Quiet, directory=str(tmp_path / "web"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_rows_come_from_every_source(tmp_path: Path, web: str) -> None:
    csv, lines = "id,name\na,x\nb,y\n", '{"id": "a"}\n\n{"id": "b"}\n'
    (tmp_path / "web/rows.csv").write_text(csv)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(csv.encode()))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "1.jsonl").write_text('{"id": "a"}\n')
    (folder / "2.jsonl").write_text('{"id": "b"}\n')
    (folder / ".hidden.jsonl").write_text('{"id": "c"}\n')
    mount = tmp_path / "mount"
    (mount / "data").mkdir(parents=True)
    (mount / "rows.jsonl").write_text(lines)
    (mount / "data/rows.csv").write_text("\ufeff" + csv)
    environment = {"WINDLASS_BATCH_INPUT_MOUNT": str(mount)}
    for source in (
        {"inline": lines},
        {"inline": csv, "format": "csv"},
        {"path": str(tmp_path / "rows.csv.gz")},
        {"path": str(folder)},
        {"configMap": {"name": "rows", "key": "rows.jsonl"}},
        {"pvc": {"claimName": "data", "path": "/data/rows.csv"}},
        {"url": f"{web}/rows.csv"},
    ):
        assert ids_of(batch_of(tmp_path, input=source), environment) == ["a", "b"], source
    (folder / "text.txt").write_text("hello")
    files = batch_of(tmp_path, input={"path": str(folder), "format": "dir"})
    assert ids_of(files) == ["1.jsonl", "2.jsonl", "text.txt"]
    assert len(ids_of(batch_of(tmp_path))) == 16


def test_inputs_that_cannot_be_read_are_told(tmp_path: Path, web: str) -> None:
    (tmp_path / "rows.csv").write_text("id,id\n1,2\n")
    cases = {
        f"{web}/missing.csv": "answered 404",
        "http://127.0.0.1:9/rows.csv": "cannot be read",
        "s3://bucket/rows.csv": "needs the package boto3",
    }
    for url, words in cases.items():
        with pytest.raises(InputError, match=words):
            admit(batch_of(tmp_path, input={"url": url}))
    with pytest.raises(InputError, match="names the column 'id' more than once"):
        admit(batch_of(tmp_path, input={"path": str(tmp_path / "rows.csv")}))
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="needs the package pyarrow"):
        admit(batch_of(tmp_path, input={"path": str(tmp_path / "rows.parquet")}))


def test_bad_rows_become_errors_of_their_own(tmp_path: Path) -> None:
    lines = '{"id": 1, "name": "x"}\n{"id": 1, "name": "y"}\nnot json\n[1]\n{"id": 4}\n'
    lines += '{"id": true, "name": 1}\n{"id": 7, "name": 5}\n'
    schema = {"properties": {"name": {"type": "string"}}}
    given = {"inline": lines, "prompt": "Describe {name}", "itemSchema": schema}
    counts, ledger, stored = admit(batch_of(tmp_path, input=given))
    assert (counts.total, counts.invalid) == (7, 6)
    letters = {letter.id: letter.message for letter in ledger.dead_letters()}
    assert letters["1#2"] == "duplicate id '1': row 1 has it, too"
    assert letters["row-3"].startswith("line 3 is not valid JSON")
    assert letters["row-4"] == "line 4 is not a JSON object: [1]"
    assert letters[4] == "the prompt needs the column 'name': the row has id"
    assert letters["row-6"] == "the field 'id' is True: an id is text or a whole number"
    assert letters[7] == "the field 'name' is 5: spec.input.itemSchema wants the type string"
    assert stored.table.counts[ItemState.PENDING] == 1
    csv = "id,name\n1,a\n2\n3,b,c\n4,\udcff\n5,ok\n"
    (tmp_path / "rows.csv").write_bytes(csv.encode(errors="surrogateescape"))
    _, bad, _ = admit(batch_of(tmp_path, input={"path": str(tmp_path / "rows.csv")}))
    assert [letter.message for letter in bad.dead_letters()] == [
        "line 3 has 1 columns: the first line names 2",
        "line 4 has 3 columns: the first line names 2",
        "line 5 is not valid UTF-8",
    ]
    ledger.close()
    bad.close()


def test_equal_rows_without_an_id_stay_apart(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, input={"inline": '{"n": 1, "m": 2}\n{"m": 2, "n": 1}\n{"n": 3}\n'})
    first = ids_of(batch)
    assert first[1] == f"{first[0]}-2"
    assert len(set(first)) == 3
    assert ids_of(batch) == first


def test_groups_have_a_maximum_and_weights(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"id": n, "kind": f"k{n % 6}", "w": 2 + n % 6}) + "\n" for n in range(30))
    grouping = {
        "by": "upper(kind)",
        "maxGroups": 4,
        "weightField": "w",
        "perGroup": {"K1": {"parallelism": 2}},
    }
    _, ledger, stored = admit(batch_of(tmp_path, input={"inline": lines + '{"id": 99}\n'}, grouping=grouping))
    names = {group.name: group for group in stored.groups}
    assert list(names) == ["K0", "K1", "K2", "other"]
    assert stored.table.totals == [5, 5, 5, 16]
    assert (names["K0"].weight, names["K2"].weight) == (2.0, 4.0)
    assert (names["K1"].weight, names["K1"].parallelism) == (1.0, 2)
    ledger.close()


def test_equal_prefixes_and_models_are_put_together(tmp_path: Path) -> None:
    rows = [
        {"id": n, "model": f"m{n % 2}", "system": f"system {n % 10}", "prompt": f"p{n}"} for n in range(600)
    ]
    random.Random(1).shuffle(rows)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    _, ledger, stored = admit(batch_of(tmp_path, input={"inline": lines}))

    def switches(order: list[int]) -> int:
        keys = [(rows[n]["model"], rows[n]["system"]) for n in order]
        return sum(a != b for a, b in itertools.pairwise(keys))

    grouped = sorted(range(600), key=stored.table.order.__getitem__)
    assert switches(grouped) == 9
    assert switches(list(range(600))) > 400
    ledger.close()


def test_rows_that_are_there_are_taken_over_from_files_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "part-1.jsonl").write_text('{"id": 0, "text": "a"}\n{"id": 1, "error": "bad"}\n')
    (folder / "outputs.jsonl").write_text(
        '{"id": 2, "text": "c", "score": 70}\nbroken\n{"id": "gone", "text": "d"}\n'
    )
    lines = "".join(json.dumps({"id": n}) + "\n" for n in range(4))
    batch = batch_of(tmp_path, input={"inline": lines}, outputs={"path": str(folder)})
    counts, ledger, stored = admit(batch)
    assert counts.taken_over == 2
    assert [stored.table.state[n] for n in range(4)] == [2, 0, 2, 0]
    assert stored.scores == [70.0]
    assert len(list(ledger.extras())) == 1
    places = [(place, length) for _, _, place, length in ledger.rows()]
    assert places[0] == (-1, 0)  # it stays in its file
    journal = (folder / ".windlass/rows.journal").read_bytes()
    assert json.loads(journal[places[2][0] : sum(places[2])]) == {"id": 2, "text": "c", "score": 70}
    ledger.close()


def test_a_hundred_thousand_rows_are_admitted_within_the_budget(tmp_path: Path) -> None:
    with (tmp_path / "rows.jsonl").open("w") as stream:
        for n in range(100_000):
            stream.write(f'{{"id": "product-{n}", "category": "c{n % 50}", "name": "Product {n}"}}\n')
    given = {"path": str(tmp_path / "rows.jsonl"), "prompt": "Describe {name}"}
    counts, ledger, stored = admit(batch_of(tmp_path, input=given, grouping={"by": "category"}))
    assert counts.total == len(stored.table) == 100_000
    assert len(stored.groups) == 50
    ledger.close()
    assert (tmp_path / ".out.jsonl.windlass/ledger.sqlite").stat().st_size < 50 * 2**20
