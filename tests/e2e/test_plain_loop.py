"""A box as ``pip install`` makes it, without the extra ``uvloop``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from single_node import Box


def test_a_box_needs_no_uvloop(tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text('raise ImportError("not installed")\n')
    with Box("--gpus", "simulated:2", environment={"PYTHONPATH": str(tmp_path)}) as box:
        mapped = ""
        for pid in box.processes():
            with suppress(OSError):  # it was one of a moment
                mapped += Path(f"/proc/{pid}/maps").read_text()
        assert "httptools" in mapped
        assert "uvloop" not in mapped
        said = box.windlass("run", "--gpus", "1", "--", "sh", "-c", "echo hi; exit 3", check=False)
        assert (said.stdout, said.returncode) == ("hi\n", 3)
        box.windlass("submit", "--name", "longer", "--", "sleep", "600")
        box.windlass("cancel", "longer")
        box.wait_for("the job's end", lambda: box.job_phase("longer") == "Terminated")
