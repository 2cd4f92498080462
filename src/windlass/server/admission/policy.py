"""The ConfigMap that the scheduler follows: what is read differently from how it stands is told to whoever
writes it, at once."""

from __future__ import annotations

from windlass.api.resources import CONFIG_MAPS
from windlass.server.admission.plugin import Review


def advise(review: Review) -> None:
    if review.resource is not CONFIG_MAPS or not review.main:
        return
    from windlass.model import scheduler_config  # heavy, and rarely needed

    if review.name != scheduler_config.CONFIG_MAP_NAME:
        return
    if review.namespace != scheduler_config.CONFIG_MAP_NAMESPACE:
        place = f"{scheduler_config.CONFIG_MAP_NAMESPACE}/{review.name}"
        review.warn(f"advice: nobody reads this one: the scheduler follows {place}")
        return
    data = review.object.get("data")
    if not isinstance(data, dict):
        return
    try:
        parsed = scheduler_config.parse(scheduler_config.text_of(data))
    except scheduler_config.ConfigError as error:
        review.warn(f"advice: the scheduler will not take this over: {error}")
        return
    for note in parsed.notes:
        review.warn(note)
