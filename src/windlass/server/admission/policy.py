"""Review of the scheduler's ConfigMap.

A setting that the scheduler interprets differently from its text causes a warning.
"""

from __future__ import annotations

from windlass.api.resources import CONFIG_MAPS
from windlass.server.admission.plugin import Review


def advise(review: Review) -> None:
    if review.resource is not CONFIG_MAPS or not review.main:
        return
    from windlass.model import scheduler_config  # slow to import, and rarely needed

    if review.name != scheduler_config.CONFIG_MAP_NAME:
        return
    if review.namespace != scheduler_config.CONFIG_MAP_NAMESPACE:
        place = f"{scheduler_config.CONFIG_MAP_NAMESPACE}/{review.name}"
        review.warn(f"advice: this ConfigMap is not used: the scheduler reads {place}")
        return
    data = review.object.get("data")
    if not isinstance(data, dict):
        return
    try:
        parsed = scheduler_config.parse(scheduler_config.text_of(data))
    except scheduler_config.ConfigError as error:
        review.warn(f"advice: the scheduler will not apply this configuration: {error}")
        return
    for warning in parsed.notes:
        review.warn(warning)
