"""Fields of rows without effect are told, and those with an effect are not."""

from __future__ import annotations

from windlass.jobs.aigc.advice import advice


def test_fields_of_rows_without_effect_are_told() -> None:
    group = {"toys": {"priority": "high", "deadline": "2h", "parallelism": 2}}
    spec = {
        "grouping": {"by": "category", "perGroup": group},
        "batching": {"maxWaitSeconds": 5, "size": 8},
        "outputs": {"path": "/data/out.csv", "atomic": False, "retain": False},
        "items": {"leaseSeconds": 10, "infrastructureRetries": 3},
    }
    told = [line.removeprefix("advice: ").split(" ")[0:2] for line in advice(spec)]
    assert told == [
        ["spec.grouping.perGroup", "priority"],
        ["spec.grouping.perGroup", "deadline"],
        ["spec.batching.maxWaitSeconds", "has"],
        ["spec.outputs.atomic", "false"],
        ["spec.outputs.retain", "false"],
    ]
    spec["grouping"]["order"] = "Priority"
    spec["outputs"] = {"path": "/data/out.jsonl", "atomic": False, "retain": True}
    del spec["batching"]["maxWaitSeconds"]
    assert list(advice(spec)) == []


def test_a_server_on_loopback_is_looked_for_in_the_pod() -> None:
    url = "http://127.0.0.1:8000/v1"
    (line,) = advice({"runtimeRef": {"name": "openai", "url": url}})
    assert f"{url} is an address of each worker's pod" in line
    for pod in ({"hostNetwork": True}, {"containers": [{"name": "client"}, {"name": "server"}]}):
        assert not [*advice({"runtimeRef": {"name": "openai", "url": url}, "template": {"spec": pod}})]
    assert not [*advice({"runtimeRef": {"name": "openai", "url": "http://llm:8000/v1"}})]


def test_shards_without_work_for_other_ranks_are_told() -> None:
    sharded = {"runtimeRef": {"name": "openai"}, "shards": 2}
    (line,) = advice(sharded)
    assert "only rank 0 of each worker has something to do" in line
    server = {"spec": {"containers": [{"name": "client"}, {"name": "server"}]}}
    assert list(advice({**sharded, "template": server})) == []
    (line,) = advice({"placement": {"topology": "sameZone"}})
    assert "with spec.shards only" in line
