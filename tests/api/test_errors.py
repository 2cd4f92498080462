"""Status objects as the real server makes them, and errors for people."""

from __future__ import annotations

import pickle

import pytest

from windlass.api import errors, resources
from windlass.api.errors import FieldError, StatusError, WindlassError
from windlass.client.errors import Unreachable


def test_error_has_message_evidence_and_remedies() -> None:
    error = WindlassError(
        "WL-QUEUE-404", "queue x does not exist", evidence="2 queues", remedies=["windlass queue ls"]
    )
    assert str(error) == "queue x does not exist"
    assert error.as_dict() == {
        "code": "WL-QUEUE-404",
        "message": "queue x does not exist",
        "evidence": "2 queues",
        "remedies": ["windlass queue ls"],
    }


@pytest.mark.parametrize(
    ("error", "message", "reason"),
    [
        (FieldError.required("a"), "Required value", "FieldValueRequired"),
        (FieldError.required("a", "say so"), "Required value: say so", "FieldValueRequired"),
        (FieldError.invalid("a", "x", "bad"), 'Invalid value: "x": bad', "FieldValueInvalid"),
        (FieldError.invalid("a", 5, "bad"), "Invalid value: 5: bad", "FieldValueInvalid"),
        (FieldError.invalid("a", True, "bad"), "Invalid value: true: bad", "FieldValueInvalid"),
        (FieldError.invalid("a", None, "bad"), "Invalid value: null: bad", "FieldValueInvalid"),
        (
            FieldError.not_supported("a", "x", ["p", "q"]),
            'Unsupported value: "x": supported values: "p", "q"',
            "FieldValueNotSupported",
        ),
        (FieldError.duplicate("a", "x"), 'Duplicate value: "x"', "FieldValueDuplicate"),
        (FieldError.forbidden("a", "no"), "Forbidden: no", "FieldValueForbidden"),
        (FieldError.not_found("a", "x"), 'Not found: "x"', "FieldValueNotFound"),
    ],
)
def test_field_errors(error: FieldError, message: str, reason: str) -> None:
    assert (error.message, error.reason) == (message, reason)


def test_invalid_names_the_kind_and_every_cause() -> None:
    one = errors.invalid(resources.PODS, "p", [FieldError.required("spec.containers")])
    assert one.message == 'Pod "p" is invalid: spec.containers: Required value'
    assert one.details == {
        "name": "p",
        "kind": "Pod",
        "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}],
    }
    two = errors.invalid(resources.QUEUES, "q", [FieldError.required("a"), FieldError.forbidden("b", "no")])
    assert two.code == 422
    assert two.message == (
        'Queue.scheduling.volcano.sh "q" is invalid: [a: Required value, b: Forbidden: no]'
    )
    assert two.details["group"] == "scheduling.volcano.sh"


def test_the_frame() -> None:
    error = errors.not_found(resources.LEASES, "l")
    assert error.status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'leases.coordination.k8s.io "l" not found',
        "reason": "NotFound",
        "details": {"name": "l", "group": "coordination.k8s.io", "kind": "leases"},
        "code": 404,
    }
    assert errors.already_exists(resources.PODS, "p").message == 'pods "p" already exists'
    assert errors.conflict(resources.PODS, "p").reason == "Conflict"
    assert "details" not in errors.bad_request("no").status
    assert errors.expired().code == 410
    causes = errors.forbidden(resources.PODS, "p", "no", [{"reason": "R", "message": "m", "field": "f"}])
    assert causes.details["causes"] == [{"reason": "R", "message": "m", "field": "f"}]


def test_a_status_of_another_server_is_read_leniently() -> None:
    bare = StatusError({})
    assert (bare.code, bare.reason, bare.message, bare.details) == (500, "", "", {})
    assert bare.retry_after_seconds is None
    assert StatusError({"details": {"retryAfterSeconds": 3}}).retry_after_seconds == 3


@pytest.mark.parametrize(
    "error",
    [
        WindlassError("WL-CLI-201", "No file", evidence="0 bytes", remedies=["ls"]),
        Unreachable("WL-SERVER-503", "No answer", refused=True),
        StatusError({"code": 404, "message": "pods a not found"}, {"Retry-After": "1"}),
    ],
)
def test_exception_of_a_pool_process_arrives_complete(error: Exception) -> None:
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert (str(arrived), vars(arrived)) == (str(error), vars(error))
