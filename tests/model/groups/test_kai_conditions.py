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


def test_a_group_that_waits_says_so_beside_what_others_say() -> None:
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


def test_other_words_renew_it_and_its_end_takes_it_away() -> None:
    before = kai_conditions.desired(view(), LACKS, 0.0)
    assert before is not None
    more = Explanation(Reason.INSUFFICIENT_RESOURCES, "It needs 8 nvidia.com/gpu; 4 are free.")
    (after,) = kai_conditions.desired(view(*before), more, 1.0) or ()
    assert (after["message"], after["transitionID"]) == (more.statement, "2")
    assert kai_conditions.desired(view(OTHER, after), None, 2.0) == [OTHER]
    assert kai_conditions.desired(view(OTHER), None, 2.0) is None


def test_of_a_pool_it_is_told_under_its_name() -> None:
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


def test_what_is_no_list_of_conditions_is_none() -> None:
    obj = kai_group("g", 2, "q")
    obj["status"] = {"schedulingConditions": "nonsense"}
    read = views.decode_kai_pod_group(views.encode(obj))
    assert (read.conditions, read.problems) == ((), ())
