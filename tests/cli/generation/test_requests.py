"""Requests of ``windlass generate`` that cannot work are refused with the user's own command."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from tests.cli.generation.test_local_models import request

from windlass.api.errors import WindlassError
from windlass.cli.generation import progress
from windlass.cli.generation.manifest import build, check_output
from windlass.cli.generation.remedies import again


def refused(folder: Path, **given: Any) -> WindlassError:
    with pytest.raises(WindlassError) as failure:
        build(request(folder, **given), "shop", "default")
    return failure.value


def test_refusals_name_the_file_and_the_options_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "other.gguf").touch()
    scaler = tmp_path / "scaler.py"
    scaler.write_text("from kurator_sdk import AutoScaler\nclass Mine(AutoScaler):\n    pass\n")
    start = f"windlass generate {tmp_path}/rows.csv --prompt"
    for given, code, remedy in (
        ({"group_by": "nam"}, "WL-GENERATE-422", f"{start} 'Describe {{name}}' --group-by name"),
        ({"prompt": "x {nmae}"}, "WL-GENERATE-422", f"{start} 'x {{name}}'"),
        ({"id_field": "ids"}, "WL-GENERATE-422", f"{start} 'Describe {{name}}' --id id"),
        (
            {"runtime": "builtin-generate", "command": ("python3", "slow.py")},
            "WL-USE-400",
            f"{start} 'Describe {{name}}' -- python3 slow.py",
        ),
        (
            {"workers": "2", "autoscaler": str(scaler)},
            "WL-USE-400",
            f"{start} 'Describe {{name}}' --workers 1-2 --autoscaler {scaler}",
        ),
        ({"autoscaler": str(tmp_path / "no.py")}, "WL-GENERATE-404", f"ls -l {tmp_path}"),
        (
            {"model": f"{tmp_path}/nope.gguf"},
            "WL-GENERATE-404",
            f"{start} 'Describe {{name}}' --model {tmp_path}/other.gguf",
        ),
    ):
        error = refused(tmp_path, **given)
        assert (error.code, remedy in error.remedies) == (code, True), (given, error.remedies)
    rows = "category,name,sku\ncups,Mug,7\ncups,Cup,8\n"
    for text, named in (
        (rows, " --id sku"),
        (rows + "x,Cup,8\n", ""),
        (rows.replace("category", "id"), " --id sku"),
    ):
        wanted = request(tmp_path, id_field="su")
        (tmp_path / "rows.csv").write_text(text)
        with pytest.raises(WindlassError) as failure:
            build(wanted, "shop", "default")
        assert failure.value.remedies[1] == f"{start} 'Describe {{name}}'{named}"
    for good in ({"group_by": "id"}, {"group_by": "name[:1]"}, {"workers": "1-2", "autoscaler": str(scaler)}):
        build(request(tmp_path, **good), "shop", "default")
    (tmp_path / "file").touch()
    blocked = request(tmp_path, output=str(tmp_path / "file/out.jsonl"))
    with pytest.raises(WindlassError) as failure:
        check_output(blocked)
    assert again(blocked, output="/tmp/out.jsonl") in failure.value.remedies


@pytest.mark.parametrize("name", ["rows.csv", "link.csv", "hard.csv", "folder/../rows.csv"])
def test_outputs_that_would_replace_the_input_are_refused(tmp_path: Path, name: str) -> None:
    request(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.csv").symlink_to("rows.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "rows.csv")
    before = sorted(tmp_path.iterdir())
    error = refused(tmp_path, output=str(tmp_path / name))
    assert error.code == "WL-GENERATE-403"
    assert f"the outputs would replace the input {tmp_path}/rows.csv" in str(error)
    start = f"windlass generate {tmp_path}/rows.csv --prompt 'Describe {{name}}'"
    assert error.remedies == (start, f"{start} --output {tmp_path}/rows.out.csv")
    assert sorted(tmp_path.iterdir()) == before
    for output in ("", str(tmp_path / "rows.out.csv"), str(tmp_path)):
        build(request(tmp_path, output=output), "shop", "default")


def test_an_input_with_the_name_of_the_outputs_in_their_folder_is_refused(tmp_path: Path) -> None:
    rows = tmp_path / "outputs.jsonl"
    rows.write_text('{"id": "a", "name": "cup"}\n')
    error = refused(tmp_path, file=str(rows), output=str(tmp_path))
    assert f"the outputs would replace the input {rows}" in str(error)


def test_a_file_that_no_job_wrote_is_not_replaced(tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text("precious\n")
    error = refused(tmp_path, output=str(notes))
    assert (error.code, error.remedies[0]) == ("WL-GENERATE-403", f"mv {notes} {notes}.kept")
    assert f"the outputs would replace {notes}, which no generation job wrote" in str(error)
    notes.write_text('{"id": "a", "text": "A cup"}\n')
    build(request(tmp_path, output=str(notes)), "shop", "default")


def test_workers_reach_a_server_of_this_machine(tmp_path: Path) -> None:
    local = build(request(tmp_path, model="m", url="http://127.0.0.1:8000/v1"), "shop", "default")["spec"]
    assert local["template"]["spec"]["hostNetwork"] is True
    assert (
        "template"
        not in build(request(tmp_path, model="m", url="http://llm:8/v1"), "shop", "default")["spec"]
    )


@pytest.mark.parametrize(("name", "text"), [("a.csv", "id,name\n"), ("a.csv", ""), ("a.jsonl", "\n \n")])
def test_files_without_rows_are_refused(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    error = refused(tmp_path, file=str(path))
    assert (error.code, error.message) == ("WL-GENERATE-422", f"the file {path} has no row")
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    build(request(tmp_path, file=str(packed)), "shop", "default")  # read by the driver alone


def test_empty_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    assert refused(tmp_path, file=str(tmp_path / "rows"), prompt="").message.endswith("rows has no row")


def test_rows_of_an_earlier_job_are_told_with_the_way_to_make_them_again() -> None:
    record = {"rows": 2, "from": "/data/out.jsonl", "changed": ["model", "prompt"]}
    obj = {"status": {"takenOver": record}}
    assert progress.taken_over(obj) == [
        "2 rows of an earlier job taken over from /data/out.jsonl",
        "warning: rows taken over were made with another model and another prompt",
    ]
    assert progress.remake(obj) == [
        "to make all rows again: give --output another file, or rm -rf /data/out.jsonl /data/.out.jsonl.windlass",
    ]
    assert progress.taken_over({"status": {}}) == progress.remake({"status": {}}) == []


def test_rows_that_have_changed_are_told_in_plain_words() -> None:
    def told(rows: int, changed: int) -> list[str]:
        record = {"rows": rows, "changedRows": changed, "from": "/data/out.jsonl", "changed": []}
        obj = {"kind": "AIGCJob", "status": {"takenOver": record}}
        assert dict(progress.facts(obj))["Taken over"].splitlines() == progress.taken_over(obj)
        assert bool(progress.remake(obj)) == bool(rows)
        return progress.taken_over(obj)

    assert told(2, 1) == [
        "2 rows of an earlier job taken over from /data/out.jsonl",
        "1 row of the input has changed since an earlier job: it is processed again and its output replaced",
    ]
    assert told(0, 3) == [
        "3 rows of the input have changed since an earlier job: "
        "they are processed again and their outputs replaced"
    ]


def test_outputs_of_rows_that_are_not_in_the_input_are_told() -> None:
    record = {"rows": 0, "otherRows": 2, "from": "/data/out.jsonl", "changed": []}
    obj = {"kind": "AIGCJob", "status": {"takenOver": record}}
    assert progress.taken_over(obj) == [
        "warning: 2 rows of /data/out.jsonl are not in the input, and stay in the outputs"
    ]
    assert progress.remake(obj)


def test_progress_tells_rows_to_be_tried_again_and_why() -> None:
    items = {"total": 9, "done": 3, "failed": 3, "deadLetter": 1}
    error = {"reason": "ServerUnreachable", "message": "http://llm/v1 cannot be reached"}
    obj = {"status": {"phase": "Running", "items": items, "lastError": error}}
    assert progress.line(obj) == (
        "Running  3 of 9 items  1 failed  2 to be tried again  "
        "ServerUnreachable: http://llm/v1 cannot be reached"
    )
    obj["status"] |= {"phase": "Succeeded", "items": {**items, "done": 8, "failed": 1}}
    assert progress.line(obj) == "Succeeded  8 of 9 items  1 failed"


def test_rows_left_are_neither_done_nor_dead_letters() -> None:
    assert progress.left_of({"items": {"total": 9, "done": 3, "failed": 2, "deadLetter": 1}}) == 5
    assert progress.left_of({}) == 0


def test_the_ending_of_the_output_file_is_its_format(tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").mkdir()
    for name, expected in (
        ("o.csv", {"path": f"{tmp_path}/o.csv", "format": "csv"}),
        ("o.parquet", {"path": f"{tmp_path}/o.parquet", "format": "parquet"}),
        ("o.jsonl", {"path": f"{tmp_path}/o.jsonl"}),
        ("there.jsonl", {"path": f"{tmp_path}/there.jsonl/"}),
        ("new/", {"path": f"{tmp_path}/new/"}),
    ):
        given = request(tmp_path, output=f"{tmp_path}/{name}")
        assert build(given, "shop", "default")["spec"]["outputs"] == expected
        check_output(given)
    wrong = request(tmp_path, output=f"{tmp_path}/o.xlsx")
    with pytest.raises(WindlassError, match=r"outputs are not written as \.xlsx") as failure:
        check_output(wrong)
    assert again(wrong, output=f"{tmp_path}/o.jsonl") in failure.value.remedies


def test_control_c_while_the_job_is_created_tells_whether_it_was(windlass, cluster, tmp_path: Path) -> None:
    command = ("generate", request(tmp_path).file, "--prompt", "x", "--name", "shop", "--detach")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    cluster.on_create.append(interrupt)
    done = windlass(*command)
    created = any(name == "shop" for _, _, name in cluster.objects)
    assert (done.code, created) == (130, True), done.err
    assert "detached; shop keeps running\ncome back: windlass show shop\n" in done.err
    cluster.objects = {key: obj for key, obj in cluster.objects.items() if key[2] != "shop"}
    cluster.on_create[:] = [lambda *_: cluster.objects.clear(), interrupt]
    assert windlass(*command).err == "\ninterrupted; no job was created\n"


def test_rows_without_a_prompt_are_refused_for_a_model(tmp_path: Path) -> None:
    error = refused(tmp_path, prompt="", model="m", url="http://llm:8/v1")
    path = tmp_path / "rows.csv"
    assert error.message == f"there is no --prompt, and the rows of {path} have no column prompt"
    build(request(tmp_path, prompt="", command=("cat",)), "shop", "default")
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "prompt": "Describe a cup"}\n')
    build(request(tmp_path, file=str(tmp_path / "rows.jsonl"), prompt=""), "shop", "default")


def test_folders_of_tables_are_told_from_folders_of_rows(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    assert not request(tmp_path, file=str(folder)).takes_files_of_rows
    (folder / "a.csv.gz").touch()
    (folder / "b.jsonl").touch()
    assert request(tmp_path, file=str(folder)).takes_files_of_rows
    (folder / "c.txt").touch()
    assert not request(tmp_path, file=str(folder)).takes_files_of_rows


def test_rows_without_scores_are_told_where_quality_is_wanted() -> None:
    def job(scorer: object, quality: dict[str, Any] | None) -> dict[str, Any]:
        spec = {"outputs": {"quality": {"min": 90} | ({"scorer": scorer} if scorer else {})}}
        return {"kind": "AIGCJob", "spec": spec, "status": {"quality": quality} if quality else {}}

    none = job("", {"unscored": 30})
    start = "warning: no finished row has a score (30 rows), so quality is not checked"
    text = f"{start}: name a scorer (--scorer), or let the outputs have a number in the field score"
    assert progress.unscored(none) == text
    assert dict(progress.facts(none))["Quality"] == text
    for scorer in ("sc:rate", {"name": "sc:rate"}):
        words = progress.unscored(job(scorer, {"unscored": 30}))
        assert words == f"{start}: the scorer sc:rate returned no number"
    some = job("sc:rate", {"mean": 93.5, "below": 1, "unscored": 2})
    assert progress.unscored(some) == progress.unscored(job("", None)) == ""
    assert dict(progress.facts(some))["Quality"] == "mean 93.5, 1 below the minimum, 2 rows without a score"


def test_outputs_cannot_be_a_device(tmp_path: Path) -> None:
    with pytest.raises(WindlassError) as failure:
        check_output(request(tmp_path, output="/dev/null"))
    assert failure.value.evidence == "it is neither a file nor a folder"


def test_further_options_of_a_remedy_stand_before_the_program(tmp_path: Path) -> None:
    given = request(tmp_path, prompt="red -- or blue", command=("python3", "slow.py"))
    assert again(given, "--name", "NAME").endswith("--prompt 'red -- or blue' --name NAME -- python3 slow.py")
