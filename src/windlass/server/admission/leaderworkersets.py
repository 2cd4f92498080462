"""Labels and variables of new pods of LeaderWorkerSets."""

from __future__ import annotations

from windlass.api.errors import bad_request
from windlass.api.resources import PODS
from windlass.jobs.leaderworkerset.pods import decorate
from windlass.server.admission.plugin import Review


def finish(review: Review) -> None:
    """Finish a new pod of a LeaderWorkerSet, as its webhook does."""
    if review.resource is not PODS or not review.creating or not review.main:
        return
    labels = (review.object.get("metadata") or {}).get("labels")
    if not labels or "leaderworkerset.sigs.k8s.io/name" not in labels:
        return
    try:
        decorate(review.object)
    except ValueError as error:
        raise bad_request(str(error)) from error
