"""``windlass docs``: the pages are found by topic, offline, in a checkout and in a wheel."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.cli import manual

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


def test_all_topics_are_listed_and_each_page_prints(windlass, cluster):
    cluster.down = True
    listed = json.loads(windlass("docs", "-o", "json").out)
    files = [path for name in manual.SECTIONS for path in (ROOT / "docs" / name).rglob("*.md")]
    assert len(listed) == len(files) > 60
    for page in listed:
        text = windlass("docs", page["topic"]).out
        assert f"# {page['title']}" in text
    assert windlass("docs").out.startswith("start:  ")


def test_a_topic_may_be_a_path_or_the_number_of_a_decision(windlass, cluster):
    assert windlass("docs", "placement", "-o", "name").out == "placement\n"
    assert windlass("docs", "guides/placement", "-o", "name").out == "placement\n"
    assert windlass("docs", "docs/concepts/placement.md", "-o", "name").out == "concepts/placement\n"
    assert (
        windlass("docs", "12").out == (ROOT / "docs/decisions/0012-placement-by-fragmentation.md").read_text()
    )
    page = json.loads(windlass("docs", "gangs", "-o", "json").out)
    assert page == {"topic": "gangs", "title": "Gangs", "text": (ROOT / "docs/concepts/gangs.md").read_text()}


def test_an_unknown_topic_names_the_nearest(windlass, cluster):
    failed = windlass("docs", "architektur")
    assert failed.code == 3
    assert 'there is no page "architektur"' in failed.err
    assert "try: windlass docs architecture" in failed.err


def test_an_installation_without_pages_is_told(windlass, cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(manual, "PLACES", (tmp_path / "manual",))
    failed = windlass("docs", "gangs")
    assert failed.code == 3
    assert "contains no documentation" in failed.err


def test_the_wheel_contains_the_pages_where_the_command_looks():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    place = manual.PLACES[0].relative_to(manual.PLACES[0].parents[1])
    assert build["wheel"]["force-include"] == {"docs": str(place)}
    assert "docs" in build["sdist"]["include"]


REQUIRED = {
    "F4": ("hardware", ["A100 or H100", "EPYC 7763", "25 Gbps", "no claim about their speed"]),
    "F17": ("roadmap", ["quantum", "research", "promises no date and no result", "example.org/qpu"]),
    "F18 priority": ("tutorial-priority", ["aigc-urgent", "hotfix"]),
    "F18 progressive": ("tutorial-progressive", ["GPU IDLE", "IDLE SAVED"]),
    "F19": (
        "architecture",
        ["**infrastructure**", "**resource management**", "**scheduling engine**", "**job orchestration**"],
    ),
    "F30": ("decisions", ["Volcano's API", "GPU operator", "RDMA", "Storage"]),
    "F35": ("stack", ["Arena", "DeepSpeed", "NCCL", "Gloo", "Loki", "ELK", "built in", "replaced"]),
    "N6": ("claims", ["* N6: ", "Windlass claims none of these", "## Segments in parallel"]),
    "N7": ("claims", ["* N7: ", "Windlass claims none of these"]),
    "N8": (
        "network",
        [
            "| pod network (CNI) | 100 µs | `001_",
            "| VPC with SR-IOV | 20 µs | `001_",
            "| host network with RDMA | 5 µs | `001_",
            "RDMA (5 µs and 8 µs)",
            "None of these figures is a claim of Windlass",
        ],
    ),
    "N9": ("versions", ["535.104.05", "1.26", "1.7.0"]),
    "N22": (
        "network",
        [
            "| TCP, per packet | 120 µs | `004_",
            "| RoCE, per packet | 8 µs | `004_",
            "None of these figures is",
        ],
    ),
    "C1": ("from-kurator", ["helm repo add kurator", "helm install kurator", "windlass up", "AIGCJob"]),
    "D7": ("from-kurator", ["Windlass depends on none of them"]),
}
"""Requirement → the topic that answers it, and words of the answer."""


@pytest.mark.parametrize(("topic", "words"), REQUIRED.values(), ids=REQUIRED)
def test_the_topic_of_a_requirement_is_there_and_answers_it(windlass, cluster, topic, words):
    cluster.down = True
    printed = windlass("docs", topic)
    assert printed.code == 0
    text = " ".join(printed.out.split())
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("choice", [44, 45, 46, 47])
def test_each_choice_of_f30_has_a_short_record_with_its_alternatives(windlass, cluster, choice):
    text = windlass("docs", str(choice)).out
    assert text.startswith(f"# {choice:04d} ")
    assert "**Alternatives.**" in text
    assert len(text.splitlines()) <= 45
