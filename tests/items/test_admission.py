"""Admission: sources of rows, ids, groups, order, and outputs that are taken over."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from windlass.items import parquet
from windlass.items.admission import Admitted, BatchAdmission
from windlass.items.driver import removal
from windlass.items.driver.finish import Outputs
from windlass.items.ledger.changes import ItemState
from windlass.items.ledger.database import LedgerFile, Stored
from windlass.items.ledger.journal import RowJournal
from windlass.items.outputs import cell_text
from windlass.items.places import PlaceError, places_of, prepare
from windlass.items.rows import InputError
from windlass.items.spec import BatchSpec, parse_batch


class Quiet(SimpleHTTPRequestHandler):
    """Server of a folder. It takes objects as S3 does, without signatures."""

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        target = Path(self.translate_path(self.path))
        if "closed" in target.parts:
            self.send_response(403)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(body)
            self.send_response(200)
            self.send_header("ETag", '"e"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall("<Key>([^<]*)</Key>", body)
        for key in keys:
            (Path(self.translate_path(self.path.partition("?")[0])) / key).unlink()
        told = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        answer = f"<DeleteResult {space}>{told}</DeleteResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

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
        "s3://bucket": "names no object: write s3://BUCKET/KEY",
    }
    for url, words in cases.items():
        with pytest.raises(InputError, match=words):
            admit(batch_of(tmp_path, input={"url": url}))
    with pytest.raises(InputError, match="names the column 'id' more than once"):
        admit(batch_of(tmp_path, input={"path": str(tmp_path / "rows.csv")}))
    for content in (b"PAR1", b"PAR1 no table PAR1", b"id,name"):
        (tmp_path / "rows.parquet").write_bytes(content)
        with pytest.raises(InputError, match="the file is not"):
            admit(batch_of(tmp_path, input={"path": str(tmp_path / "rows.parquet")}))


def test_packages_that_are_missing_are_named_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("arro3", "pyarrow", "obstore"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, f"{name}.io", None)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"needs the package arro3-io: pip install 'windlass\[parquet\]'"):
        admit(batch_of(tmp_path, input={"path": str(tmp_path / "rows.parquet")}))
    with pytest.raises(InputError, match=r"need the package obstore: pip install 'windlass\[storage\]'"):
        admit(batch_of(tmp_path, input={"url": "gs://bucket/rows.csv"}))
    batch = batch_of(tmp_path, outputs={"path": str(tmp_path / "out.parquet")})
    with pytest.raises(PlaceError, match=r"outputs in Parquet need the package arro3-io"):
        prepare(places_of(batch, {}))


def test_rows_come_from_parquet_and_object_stores(
    tmp_path: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": "a", "n": 1, "more": {"x": [1, 2]}}, {"id": "b", "n": 2.5, "text": "t"}]
    (tmp_path / "web/bucket").mkdir()
    target = tmp_path / "web/bucket/rows.parquet"
    kinds = parquet.kinds_of(rows, ["id", "n", "text", "more"])
    assert kinds == {"id": "string", "n": "float64", "text": "string", "more": "string"}
    assert parquet.write(target, rows, kinds, cell_text) == 2
    with target.open("rb") as stream:
        read = list(parquet.read_values(stream))
    assert read[0] == {"id": "a", "n": 1.0, "text": None, "more": '{"x":[1,2]}'}
    assert ids_of(batch_of(tmp_path, input={"path": str(target)})) == ["a", "b"]
    (tmp_path / "web/bucket/rows.csv.gz").write_bytes(gzip.compress(b"id\nx\n"))
    for name, value in (("ENDPOINT_URL", web), ("REGION", "r"), ("SKIP_SIGNATURE", "true")):
        monkeypatch.setenv(f"AWS_{name}", value)
    for key, ids in (("rows.parquet", ["a", "b"]), ("rows.csv.gz", ["x"])):
        assert ids_of(batch_of(tmp_path, input={"url": f"s3://bucket/{key}"})) == ids
    with pytest.raises(InputError, match=r"rows\.csv cannot be read"):
        admit(batch_of(tmp_path, input={"url": "s3://bucket/rows.csv"}))


def test_outputs_in_an_object_store_appear_whole_and_are_taken_over(
    tmp_path: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ENDPOINT_URL", web), ("REGION", "r"), ("SKIP_SIGNATURE", "true")):
        monkeypatch.setenv(f"AWS_{name}", value)
    for path, file in (("s3://b/k/rows.csv", "rows.csv"), ("s3://b/k/folder", "folder/outputs.jsonl")):
        batch = batch_of(tmp_path, outputs={"path": path}, input={"inline": '{"id": "a"}\n{"id": "b"}\n'})
        earlier = places_of(batch, {"WINDLASS_BATCH_OUTPUTS": str(tmp_path / "first")})
        assert earlier.remote == f"s3://b/k/{file}"
        prepare(earlier)
        BatchAdmission(batch, earlier, {}).run()
        ledger, journal = LedgerFile(earlier.ledger), RowJournal(earlier.journal)
        target = tmp_path / "web/b/k" / file
        assert not target.exists()
        Outputs(batch, earlier, ledger, journal).write()
        ledger.close()
        assert target.exists()
        target.write_text("id,text\na,A\n" if file == "rows.csv" else '{"id": "a", "text": "A"}\n')
        later = places_of(batch, {"WINDLASS_BATCH_OUTPUTS": str(tmp_path / "later")})
        prepare(later)
        assert BatchAdmission(batch, later, {}).run().taken_over == 1
        assert removal.remove(batch, {"WINDLASS_BATCH_OUTPUTS": str(tmp_path / "later")}) == ""
        assert not target.exists()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{web}/closed")
    with pytest.raises(
        PlaceError, match=r"rows\.csv cannot be written: .*403.*keys in env of spec\.template"
    ):
        prepare(places_of(batch_of(tmp_path, outputs={"path": "s3://b/k/rows.csv"}), {}))


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
    (folder / ".part-1.jsonl.windlass").mkdir()  # a batch has written part-1.jsonl
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


def test_rows_of_an_earlier_job_are_counted_with_the_settings_that_changed(tmp_path: Path) -> None:
    def record(uid: str, prompt: str, inline: str = '{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n') -> Any:
        spec = {"outputs": {"path": str(output)}, "input": {"inline": inline, "prompt": prompt}}
        batch = parse_batch({"metadata": {"name": "job", "uid": uid}, "spec": spec})
        _, ledger, _ = admit(batch)
        found = json.loads(ledger.meta("taken_over"))
        ledger.close()
        return found

    output = tmp_path / "out.jsonl"
    assert record("1", "x {n}") == {}
    output.write_text('{"id": "a", "text": "x"}\n')
    assert record("1", "x {n}") == {}  # its own rows
    assert record("2", "x {n}") == {"rows": 1, "from": str(output), "changed": []}
    assert record("3", "y {n}") == {"rows": 1, "from": str(output), "changed": ["prompt"]}
    assert record("3", "y {n}")["changed"] == ["prompt"]
    assert record("4", "y {n}")["changed"] == ["prompt"]  # the row is from another prompt still
    others = {"rows": 0, "from": str(output), "changed": [], "otherRows": 1}
    assert record("5", "y {n}", '{"id": "z", "n": 1}\n') == others
