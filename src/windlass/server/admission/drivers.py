"""Advice about DaemonSets of drivers and device plugins, which single-node mode provides itself."""

from __future__ import annotations

from windlass.api.nodes.driver_images import provided_part, provided_words
from windlass.api.resources import DAEMON_SETS
from windlass.server.admission.plugin import Review


def advise(review: Review) -> None:
    """Warn about a new DaemonSet if an agent of Windlass does not run its pod."""
    if review.resource is not DAEMON_SETS or not review.main or not review.creating:
        return
    template = (review.object.get("spec") or {}).get("template") or {}
    image, part = provided_part(template.get("spec") or {})
    if part:
        review.warn(f"advice: {provided_words(image, part)}")
