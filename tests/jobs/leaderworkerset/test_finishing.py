"""Pods that the controller finishes have what admission would have given them."""

from __future__ import annotations

import copy
import re
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import leaderworkerset
from windlass.jobs.leaderworkerset.finishing import finish, hold_back, is_held_back, unsupported
from windlass.jobs.leaderworkerset.pods import decorate

Json = dict[str, Any]
LABELS = {leaderworkerset.NAME: "llm", leaderworkerset.REVISION: "r1"}
WORKER = {**LABELS, leaderworkerset.GROUP_INDEX: "1", leaderworkerset.GROUP_KEY: "k"}


def template(labels: Json, *, tpus: bool = False, **annotations: str) -> Json:
    notes = {
        leaderworkerset.SIZE: "4",
        **{f"{leaderworkerset.PREFIX}{key}": text for key, text in annotations.items()},
    }
    limits = {"google.com/tpu": "4"} if tpus else {}
    main = {"name": "c", "image": "i", "resources": {"limits": limits}, "env": [{"name": "A", "value": "b"}]}
    spec = {"containers": [main], "initContainers": [{"name": "n", "image": "i"}]}
    return {"metadata": {"labels": dict(labels), "annotations": notes}, "spec": spec}


def pod_of(body: Json, name: str) -> Json:
    pod = copy.deepcopy(body)
    pod["metadata"] |= {"name": name, "namespace": "ns", "uid": "u"}
    pod["spec"]["subdomain"] = "llm"
    return pod


def variables(pod: Json) -> list[Json]:
    """Return the variables of each container as the kubelet resolves them."""
    found = []
    for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        values = {}
        for one in container.get("env") or ():
            path = ((one.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath", "")
            listed = re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path)
            if listed:
                values[one["name"]] = pod["metadata"][listed[1]][listed[2]]
            else:
                values[one["name"]] = pod["metadata"]["name"] if path else one["value"]
        found.append(values)
    return found


def test_finished_pods_equal_those_that_admission_changes() -> None:
    cases = [
        ("llm-1", template({**LABELS, leaderworkerset.WORKER_INDEX: "0"})),
        ("llm-1", template({**LABELS, leaderworkerset.WORKER_INDEX: "0"}, tpus=True)),
        ("llm-1-2", template(WORKER, **{"leader-name": "llm-1"})),
        ("llm-1-3", template(WORKER, tpus=True, **{"leader-name": "llm-1"})),
        ("llm-1-3", template(WORKER, **{"leader-name": "llm-1", "subgroup-size": "2"})),
        ("llm-1-1", template(WORKER, **{"leader-name": "llm-1", "exclusive-topology": "rack"})),
    ]
    for name, body in cases:
        wanted = pod_of(body, name)
        decorate(wanted)
        hold_back(body, "windlass")
        pod = pod_of(body, name)
        assert is_held_back(pod)
        patch = finish(pod)
        pod["metadata"]["labels"] |= patch["metadata"]["labels"]
        pod["metadata"]["annotations"] |= patch["metadata"]["annotations"]
        assert patch["spec"] == {"schedulingGates": []}
        assert pod["metadata"]["labels"] == wanted["metadata"]["labels"], name
        assert pod["metadata"]["annotations"][names.GROUP_NAME] == "llm-1-r1"
        assert variables(pod) == variables(wanted), name
        assert pod["spec"].get("affinity") == wanted["spec"].get("affinity"), name
        assert pod["spec"]["schedulerName"] == "windlass"


def test_other_gates_stay_and_what_needs_a_webhook_is_told() -> None:
    body = template(WORKER)
    body["spec"]["schedulingGates"] = [{"name": "own"}]
    hold_back(body, "windlass")
    assert finish(pod_of(body, "llm-1-1"))["spec"] == {"schedulingGates": [{"name": "own"}]}
    assert unsupported({}, {}) == []
    network = {"networkConfig": {"subdomainPolicy": leaderworkerset.UNIQUE_PER_REPLICA}}
    assert len(unsupported({leaderworkerset.SUBGROUP_EXCLUSIVE_TOPOLOGY: "rack"}, network)) == 2
