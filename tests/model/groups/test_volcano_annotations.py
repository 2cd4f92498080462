"""Annotations and labels as Volcano reads them: which of two names counts, and what is none."""

from __future__ import annotations

import pytest
from kubeobjects import group, pod

from windlass.api import views
from windlass.model.groups import podgroups
from windlass.model.pods import engine_task

Words = dict[str, str]
SLA, BARE = "volcano.sh/sla-waiting-time", "sla-waiting-time"


@pytest.mark.parametrize(
    ("annotations", "seconds"),
    [
        ({SLA: "1h"}, 3600.0),
        ({BARE: "1h"}, 3600.0),
        ({SLA: "2m", BARE: "1h"}, 120.0),
        ({SLA: "soon", BARE: "1h"}, 3600.0),
        ({SLA: "0s", BARE: "1h"}, 3600.0),
        ({BARE: "0s"}, None),
        ({}, None),
    ],
)
def test_how_long_a_group_waits_at_most(annotations: Words, seconds: float | None) -> None:
    body = group("g", 1)
    body["metadata"]["annotations"] = annotations
    view = views.decode_pod_group(views.encode(body))
    assert podgroups.group_of(view, podgroups.Classes().urgency("", None)).waiting_limit == seconds


@pytest.mark.parametrize(
    ("labels", "annotations", "said"),
    [
        ({}, {}, True),
        ({"volcano.sh/preemptable": "false"}, {}, False),
        ({"volcano.sh/preemptable": "false"}, {"volcano.sh/preemptable": "true"}, True),
        ({"volcano.sh/preemptable": "true"}, {"volcano.sh/preemptable": "maybe"}, False),
        ({"volcano.sh/preemptable": "true"}, {"volcano.sh/preemptable": ""}, False),
    ],
)
def test_annotation_takes_precedence_and_invalid_text_means_no(
    labels: Words, annotations: Words, said: bool
) -> None:
    assert podgroups.preemptible(labels, annotations) is said


def test_label_of_the_cooldown_takes_precedence() -> None:
    key = "volcano.sh/cooldown-time"
    body = pod("a", labels={key: "1m"}, annotations={key: "1h"})
    assert engine_task._read(views.decode_pod(views.encode(body))) == ((key, "1m"),)


def test_earliest_start_and_end_of_its_reservation_are_times() -> None:
    def read(**notes: str) -> tuple[float | None, float | None]:
        body = group("g", 1)
        body["metadata"]["annotations"] = {f"windlass.dev/{name}": text for name, text in notes.items()}
        found = podgroups.group_of(
            views.decode_pod_group(views.encode(body)), podgroups.Classes().urgency("", None)
        )
        return found.earliest_start, found.reserve_until

    assert read() == (None, None)
    assert read(**{"earliest-start": "1970-01-01T00:01:40Z"}) == (100.0, None)
    times = {"earliest-start": "1970-01-01T00:01:40Z", "reserve-until": "1970-01-01T00:02:00Z"}
    assert read(**times) == (100.0, 120.0)
    assert read(**{"earliest-start": "soon"}) == (None, None)
