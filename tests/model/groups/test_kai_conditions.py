"""KAI's condition of a PodGroup that waits: in KAI's words, and renewed only with its own."""

from __future__ import annotations

from typing import Any

import pytest
from kaiobjects import kai_group

from windlass.api import views
from windlass.api.reasons import UNPREEMPTIBLE, Blocker, Explanation, Reason
from windlass.model.groups import kai_conditions

LACKS = Explanation(Reason.INSUFFICIENT_RESOURCES, "It needs 8 nvidia.com/gpu; 2 are free.")
OTHER = {"type": "UnschedulableOnNodePool", "nodePool": "other", "transitionID": "7", "message": "theirs"}


def view(*conditions: dict[str, Any], pool: str = "") -> views.KaiPodGroup:
    obj = kai_group("g", 2, "q")
    if pool:
        obj["metadata"]["labels"] = {"kai.scheduler/node-pool": pool}
    obj["status"] = {"schedulingConditions": list(conditions), "resourcesStatus": {"allocated": {}}}
    return views.decode_kai_pod_group(views.encode(obj))


def test_waiting_group_has_a_condition_next_to_foreign_ones() -> None:
    wanted = kai_conditions.desired(view(OTHER), LACKS, 1_767_268_800.0)
    assert wanted == [
        OTHER,
        {
            "type": "UnschedulableOnNodePool",
            "nodePool": "default",
            "status": "True",
            "reason": "Unschedulable",
            "message": LACKS.statement,
            "reasons": [{"reason": "PodSchedulingErrors", "message": LACKS.statement}],
            "transitionID": "8",
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        },
    ]
    assert kai_conditions.desired(view(*wanted), LACKS, 1_767_269_999.0) is None, "the words are the same"


def test_changed_text_renews_the_condition_and_its_end_removes_it() -> None:
    before = kai_conditions.desired(view(), LACKS, 0.0)
    assert before is not None
    more = Explanation(Reason.INSUFFICIENT_RESOURCES, "It needs 8 nvidia.com/gpu; 4 are free.")
    (after,) = kai_conditions.desired(view(*before), more, 1.0) or ()
    assert (after["message"], after["transitionID"]) == (more.statement, "2")
    assert kai_conditions.desired(view(OTHER, after), None, 2.0) == [OTHER]
    assert kai_conditions.desired(view(OTHER), None, 2.0) is None


def test_condition_names_the_pool() -> None:
    (made,) = kai_conditions.desired(view(pool="a100"), LACKS, 0.0) or ()
    assert made["nodePool"] == "a100"


@pytest.mark.parametrize(
    ("code", "detail", "reason"),
    [
        (Reason.QUEUE_NOT_FOUND, "", "QueueDoesNotExist"),
        (Reason.WAITING_FOR_QUOTA, "limit of queue q", "OverLimit"),
        (Reason.EXCEEDS_QUEUE_LIMIT, f"quota 4 of queue q {UNPREEMPTIBLE}", "NonPreemptibleOverQuota"),
        (Reason.NO_MATCHING_NODE, "", "PodSchedulingErrors"),
    ],
)
def test_reasons_are_kais(code: Reason, detail: str, reason: str) -> None:
    told = Explanation(code, "why", blockers=(Blocker(code, detail=detail),))
    (made,) = kai_conditions.desired(view(), told, 0.0) or ()
    assert made["reasons"] == [{"reason": reason, "message": told.statement}]


def test_invalid_condition_list_counts_as_empty() -> None:
    obj = kai_group("g", 2, "q")
    obj["status"] = {"schedulingConditions": "nonsense"}
    read = views.decode_kai_pod_group(views.encode(obj))
    assert (read.conditions, read.problems) == ((), ())
