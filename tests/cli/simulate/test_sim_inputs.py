"""Odd files and options of ``windlass sim``: what is wrong is told with its place and a remedy, or it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import pytest

Run: TypeAlias = Any
"""Of the fixture ``windlass``."""
OWN = "id,submit_seconds,duration_seconds,gpus\n"
MARK = "\ufeff"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    (tmp_path / "t.csv").write_text(OWN + "a,0,100,4\nb,1,50,8\n")
    return str(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (OWN + "a,0,1,1\n", "1 job on 1x8"),
        ("; MaxProcs: 8\n1 0 0 10 1 -1 -1 1 10 -1 1 1 1 1 1 1 -1 -1\n", "1 job on 1x8"),
        ('{"apiVersion": "v1", "kind": "List", "items": []}\n', "there is no job in it"),
    ],
)
def test_the_mark_in_front_that_windows_writes_is_no_matter(
    windlass: Run, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "t").write_text(MARK + text, encoding="utf-8")
    done = windlass("sim", "run", "--trace", str(tmp_path / "t"), "--nodes", "1x8", "--policy", "fifo")
    assert told in done.out + done.err


def test_a_node_of_a_file_has_no_more_gpus_than_one_of_a_shape(
    windlass: Run, trace: str, tmp_path: Path
) -> None:
    """A slip of the pen took all memory there is."""
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,1,1,8,G2\nn2,1,1,1000,G2\n")
    done = windlass("sim", "run", "--trace", trace, "--nodes", str(tmp_path / "nodes.csv"))
    assert done.code == 65
    assert "nodes.csv, line 3, column gpu: '1000' is more than the 999 GPUs that a node may have" in done.err


def test_options_that_change_nothing_or_contradict_themselves_are_told(windlass: Run, trace: str) -> None:
    given = ("sim", "run", "--trace", trace, "--nodes", "1xH100:8", "--policy", "fifo")
    assert "--repair has no effect" in windlass(*given, "--repair", "4h").err
    assert "--repair" not in windlass(*given).err
    assert "--repair" not in windlass(*given, "--repair", "1h", "--mtbf", "30d").err
    twice = windlass(*given, "--speed", "H100=2", "--speed", "H100=3")
    assert (twice.code, "--speed: H100 has two values, 2 and 3; omit one of them" in twice.err) == (
        2,
        True,
    ), twice.err
    assert windlass(*given, "--speed", "H100=2", "--speed", "H100=2").code == 0


def test_a_number_with_a_line_in_it_is_no_number(windlass: Run, tmp_path: Path) -> None:
    """Python reads 1_6 as 16."""
    (tmp_path / "t.csv").write_text(OWN + "a,0,1,1_6\n")
    done = windlass("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8")
    assert (done.code, "line 2, column gpus: '1_6' is no number" in done.err) == (65, True), done.err


def test_what_is_read_is_not_written_over_nor_one_file_by_the_other(
    windlass: Run, trace: str, tmp_path: Path
) -> None:
    given = ("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "fifo")
    before = Path(trace).read_text()
    (tmp_path / "link").symlink_to(trace)
    for name in (trace, str(tmp_path / "link")):
        done = windlass(*given, "--per-job", name)
        assert (done.code, f"{name} cannot be written" in done.err, "it is the input file" in done.err) == (
            2,
            True,
            True,
        )
    assert Path(trace).read_text() == before
    both = windlass(*given, "--report", str(tmp_path / "out"), "--per-job", str(tmp_path / "out"))
    assert (both.code, "two outputs have this name" in both.err) == (2, True), both.err
    assert windlass(*given, "--per-job", "/dev/stdout", "--report", "/dev/stdout").code == 0


def test_a_folder_is_no_policy_and_what_lies_in_it_may_be(
    windlass: Run, trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.conf").write_text('actions: "allocate"\n')
    (tmp_path / "fifo").mkdir()
    monkeypatch.chdir(tmp_path)
    given = ("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy")
    for name in ("policies", "policies/", "./policies"):
        done = windlass(*given, name)
        assert done.code == 2
        assert f"--policy {name} is a directory" in done.err
        assert "try: --policy policies/mine.conf" in done.err
    assert windlass(*given, "fifo").code == 0, "a policy is called so"


def test_an_empty_first_line_is_said_to_be_that(windlass: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n" + OWN + "a,0,1,1\n")
    done = windlass("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8")
    assert (done.code, "line 1: it is empty, and should be the header" in done.err) == (65, True)
