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
        if _advise_flags(review):
            return
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


def _advise_flags(review: Review) -> bool:
    """Warn how flags in a ConfigMap of another namespace are read. Return whether it holds flags."""
    from windlass.model import engine_options, scheduler_config

    data = review.object.get("data")
    texts = [text for text in data.values() if isinstance(text, str)] if isinstance(data, dict) else []
    if not texts or not all(engine_options.is_flags(text) for text in texts):
        return False
    for text in texts:
        for warning in engine_options.notes(text):
            review.warn(warning)
    namespace = scheduler_config.CONFIG_MAP_NAMESPACE
    review.warn(
        f"default: namespace {review.namespace} instead of {namespace} -> read as engine options as well, the"
        f" policy of {namespace} stays in force"
    )
    return True
