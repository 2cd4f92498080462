"""Field review: normal form, unknown fields, duplicates, and the errors of both ways of decoding."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api import resources
from windlass.api.errors import StatusError
from windlass.api.resources import CONFIG_MAPS, EVENTS, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from windlass.api.wire import decode, field_review, schema


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "x", "image": "y"}], **spec}}


def test_a_clean_pod_stays_as_it_is() -> None:
    report = field_review.review(PODS, pod(nodeSelector={"a": "b"}))
    assert (report.unknown, report.duplicates, report.errors, report.invalid) == ([], [], [], [])
    assert report.object["spec"] == {
        "containers": [{"name": "x", "image": "y", "resources": {}}],
        "nodeSelector": {"a": "b"},
    }
    assert report.object["status"] == {}


def test_empties_and_nulls_go_as_in_go() -> None:
    spec = field_review.review(
        PODS,
        pod(
            nodeSelector={},
            tolerations=[],
            hostNetwork=False,
            nodeName="",
            affinity=None,
            priority=0,
            terminationGracePeriodSeconds=0,
            containers=[{"name": "x", "command": [None], "env": None}, None],
        ),
    ).object["spec"]
    assert spec == {
        "priority": 0,  # a pointer: zero is a value
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": "x", "command": [""], "resources": {}},
            {"name": "", "resources": {}},
        ],
    }


def test_fields_that_go_always_writes_are_written() -> None:
    event = field_review.review(EVENTS, {"metadata": {"name": "e"}, "involvedObject": {}}).object
    assert event["firstTimestamp"] is None
    assert event["source"] == {}
    assert event["reportingComponent"] == ""


def test_unknown_fields_are_pruned_in_the_order_of_the_body() -> None:
    body = pod(zz=1, aa=2, containers=[{"name": "x", "Image": "y", "foo": {"bar": 1}}])
    report = field_review.review(PODS, body)
    assert report.unknown == ["spec.containers[0].Image", "spec.containers[0].foo", "spec.zz", "spec.aa"]
    assert report.object["spec"] == {"containers": [{"name": "x", "resources": {}}]}


def test_duplicates_come_from_the_text() -> None:
    text = b'{"metadata":{"name":"a","name":"b"},"spec":{"zz":1,"zz":2,"nodeSelector":{"k":"1","k":"2"}}}'
    report = field_review.review(PODS, decode.decode_body(PODS, "application/json", text))
    assert report.duplicates == ["metadata.name", "spec.nodeSelector.k"]  # not zz, which is unknown
    assert report.object["metadata"]["name"] == "b"
    assert report.strict == [
        'unknown field "spec.zz"',
        'duplicate field "metadata.name"',
        'duplicate field "spec.nodeSelector.k"',
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            pod(containers="x"),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            pod(restartPolicy=5),
            "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            pod(priority=3_000_000_000),
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            pod(volumes=[{"name": "v", "emptyDir": 5}]),
            "json: cannot unmarshal number into Go struct field Volume.spec.volumes.VolumeSource.emptyDir of type "
            "v1.EmptyDirVolumeSource",
        ),
        (
            {"metadata": {"labels": {"a": {}}}},
            "json: cannot unmarshal object into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            {"metadata": {"creationTimestamp": "x"}},
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ),
    ],
)
def test_type_errors_have_gos_text(body: dict[str, Any], message: str) -> None:
    assert field_review.review(PODS, body).errors[:1] == [message]


def test_quantities_get_their_canonical_text() -> None:
    amounts = {"limits": {"cpu": "1000m", "memory": "1024Mi", "nvidia.com/gpu": 4}}
    body = pod(containers=[{"name": "x", "resources": amounts}])
    limits = field_review.review(PODS, body).object["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "4"}


# --- custom kinds -------------------------------------------------------------------------------------


def job(**task: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j"}, "spec": {"tasks": [{"name": "w", **task}]}}


def test_custom_kinds_are_pruned_by_their_schema() -> None:
    body = {
        "metadata": {"name": "q", "zz": 1},
        "spec": {"weight": 1, "wieght": 2, "parent": None},
        "extra": 1,
    }
    report = field_review.review(QUEUES, body)
    assert report.unknown == ["metadata.zz", "extra", "spec.wieght"]
    assert report.object == {"metadata": {"name": "q"}, "spec": {"weight": 1}}


def test_an_alias_is_a_known_field() -> None:
    report = field_review.review(QUEUES, {"metadata": {"name": "q"}, "spec": {"guaranteed": {"cpu": 1}}})
    assert not report.unknown


def test_templates_inside_jobs_are_checked_but_not_rewritten() -> None:
    template = {
        "spec": {
            "containers": [
                {"name": "x", "imagee": "y", "resources": {"limits": {"cpu": "1000m"}}, "command": []}
            ],
            "nodeSelector": {},
        }
    }
    report = field_review.review(VOLCANO_JOBS, job(template=template))
    assert report.unknown == ["spec.tasks[0].template.spec.containers[0].imagee"]
    assert report.object["spec"]["tasks"][0]["template"] == {
        "spec": {
            "containers": [{"name": "x", "resources": {"limits": {"cpu": "1000m"}}, "command": []}],
            "nodeSelector": {},
        }
    }


def test_custom_type_errors_name_the_path() -> None:
    report = field_review.review(VOLCANO_JOBS, job(replicas="two", template={"spec": {"containers": "x"}}))
    assert [(error.field, error.message) for error in report.invalid] == [
        (
            "spec.tasks[0].replicas",
            'Invalid value: "string": spec.tasks[0].replicas in body must be of type integer: "string"',
        ),
        (
            "spec.tasks[0].template.spec.containers",
            'Invalid value: "string": spec.tasks[0].template.spec.containers in body must be of type array: "string"',
        ),
    ]


def test_metadata_of_custom_kinds_is_decoded_as_gos() -> None:
    report = field_review.review(POD_GROUPS, {"metadata": {"name": 5}})
    assert report.errors == [
        "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"
    ]


# --- what the server answers --------------------------------------------------------------------------


def test_strict_rejects_warn_warns_and_ignore_is_silent() -> None:
    def reviewed() -> field_review.FieldReport:
        return field_review.review(PODS, pod(zz=1))

    with pytest.raises(StatusError) as caught:
        field_review.enforce(PODS, reviewed(), "Strict")
    assert (caught.value.code, caught.value.message) == (
        400,
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.zz"',
    )
    assert field_review.enforce(PODS, reviewed(), "Warn") == ['unknown field "spec.zz"']
    assert field_review.enforce(PODS, reviewed(), "") == ['unknown field "spec.zz"']
    assert field_review.enforce(PODS, reviewed(), "Ignore") == []


def test_patch_is_rejected_with_422() -> None:
    with pytest.raises(StatusError) as caught:
        field_review.enforce(PODS, field_review.review(PODS, pod(zz=1)), "Strict", patch=True)
    assert caught.value.code == 422
    assert caught.value.details["causes"][0]["field"] == "patch"
    with pytest.raises(StatusError) as caught:
        field_review.enforce(PODS, field_review.review(PODS, pod(containers=5)), "", patch=True)
    assert caught.value.code == 422


def test_errors_come_before_strictness() -> None:
    with pytest.raises(StatusError, match="cannot unmarshal"):
        field_review.enforce(PODS, field_review.review(PODS, pod(zz=1, priority="x")), "Strict")
    with pytest.raises(StatusError) as caught:
        field_review.enforce(
            QUEUES, field_review.review(QUEUES, {"metadata": {"name": "q"}, "spec": {"weight": "x"}}), ""
        )
    assert (caught.value.code, caught.value.details["kind"]) == (422, "Queue")


def test_unknown_validation_is_reported() -> None:
    with pytest.raises(StatusError, match=r'CreateOptions\.meta\.k8s\.io "" is invalid: fieldValidation'):
        field_review.check_validation("Sometimes")
    with pytest.raises(StatusError, match="PatchOptions"):
        field_review.check_validation("Sometimes", patch=True)


# --- properties ---------------------------------------------------------------------------------------

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "metadata", "containers", "name", "env", "resources", "limits", "cpu", "zz", "tasks"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["spec", "metadata", "status", "zz", "data"]), _json, max_size=4))
def test_any_body_is_reviewed_and_a_second_review_finds_nothing(body: dict[str, Any]) -> None:
    """Whatever comes, the walk ends without an exception, and its result is a fixed point."""
    for resource in (PODS, CONFIG_MAPS, VOLCANO_JOBS, QUEUES):
        first = field_review.review(resource, json.loads(json.dumps(body)))
        if first.errors or first.invalid:
            continue
        again = field_review.review(resource, json.loads(json.dumps(first.object)))
        assert again.unknown == []
        assert again.object == first.object


def test_every_kind_can_be_empty() -> None:
    for resource in resources.ALL:
        report = field_review.review(resource, {})
        assert not report.errors
        assert not report.invalid


def test_options_of_a_delete() -> None:
    struct = schema.builtin(f"{schema.META}DeleteOptions")
    report = field_review.review_struct(struct, {"gracePeriodSeconds": "x"})
    assert report.errors == [
        "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
    ]
