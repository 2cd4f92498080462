"""Manifests of the guide are specifications without problems."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from windlass.items.spec import check

GUIDE = Path(__file__).parents[2] / "docs/guides/batch-rows.md"


def test_each_block_of_the_guide_is_accepted() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.S)
    assert len(blocks) >= 7
    for block in blocks:
        assert check({"metadata": {"name": "job"}, "spec": yaml.safe_load(block)}) == [], block
