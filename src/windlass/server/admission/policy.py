"""The ConfigMap that the scheduler follows: what is read differently from how it stands is told to whoever
writes it, at once."""

from __future__ import annotations

from windlass.api.resources import CONFIG_MAPS
from windlass.server.admission.plugin import Review


def advise(review: Review) -> None:
    if review.resource is not CONFIG_MAPS or not review.main:
        return
    from windlass.model import scheduler_config  # heavy, and rarely needed

    place = (scheduler_config.CONFIG_MAP_NAMESPACE, scheduler_config.CONFIG_MAP_NAME)
    data = review.object.get("data")
    if (review.namespace, review.name) != place or not isinstance(data, dict):
        return
    try:
        parsed = scheduler_config.parse(scheduler_config.text_of(data))
    except scheduler_config.ConfigError as error:
        review.warn(f"advice: the scheduler will not take this over: {error}")
        return
    for note in parsed.notes:
        review.warn(note)
