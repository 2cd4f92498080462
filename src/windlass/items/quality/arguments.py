"""Arguments of scorers: what is wrong with them is told before a GPU is bound."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from windlass.items.spec import QualitySpec

UNITS = ("characters", "words")
LANGUAGES = (
    *("ar", "de", "el", "en", "es", "fr", "he", "hi"),
    *("it", "ja", "ko", "nl", "pt", "ru", "th", "zh"),
)
"""Languages that the scorer ``language`` knows."""


def length_bounds(arguments: Mapping[str, Any]) -> tuple[float, float, str]:
    """Return least, most and unit of the scorer ``length``. Raises ``ValueError``."""
    text = str(arguments.get("range", ""))
    low, _, high = text.partition("-")
    try:
        least = float(arguments.get("min", low or 1))
        most = float(arguments.get("max", high or "inf"))
    except (TypeError, ValueError):
        raise ValueError(
            f"the scorer length has the range {text!r}: write, for example, length:50-400"
        ) from None
    unit = str(arguments.get("unit", UNITS[0]))
    if unit not in UNITS:
        raise ValueError(f"the scorer length has the unit {unit!r}: it counts {' or '.join(UNITS)}")
    if not 0 <= least < math.inf or math.isnan(most) or most <= 0:
        raise ValueError(
            f"the scorer length has the bounds {least:g} and {most:g}: a length is at least 0, "
            "and its upper bound at least 1"
        )
    if least > most:
        raise ValueError(
            f"the scorer length has the lower bound {least:g} above the upper bound {most:g}: "
            f"write length:{most:g}-{least:g}"
        )
    return least, most, unit


def language_of(arguments: Mapping[str, Any]) -> str:
    """Return the language of the scorer ``language``. Raises ``ValueError``."""
    language = str(arguments.get("language", "")).lower().split("-")[0]
    if language in LANGUAGES:
        return language
    known = ", ".join(LANGUAGES)
    if not language:
        raise ValueError(f"the scorer language names no language: write, for example, language:de ({known})")
    raise ValueError(f"the scorer language does not know {language!r}: it knows {known}")


def patterns_of(arguments: Mapping[str, Any]) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    """Return the pattern to be found and the forbidden one. Raises ``ValueError``."""
    pattern, forbid = arguments.get("pattern"), arguments.get("forbid")
    if not pattern and not forbid:
        raise ValueError(r"the scorer regex has no pattern: write, for example, regex:^\d+$")
    found: list[re.Pattern[str]] = []
    for text in (str(pattern or ""), str(forbid or "")):
        try:
            found.append(re.compile(text))
        except re.error as error:
            raise ValueError(f"the scorer regex has the pattern {text!r}: {error}") from None
    return found[0], found[1] if forbid else None


def judge_url(arguments: Mapping[str, Any], server: str) -> str:
    """Return the URL of the judge's server. ``server``: that of the runtime. Raises ``ValueError``."""
    url = str(arguments.get("url") or server).rstrip("/")
    if not url:
        raise ValueError(
            "the scorer judge needs url, the base URL of an OpenAI-compatible server: write, in the manifest, "
            "scorer: {name: judge, url: http://HOST:8000/v1, model: NAME}"
        )
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"the scorer judge has the url {url!r}: it must begin with http:// or https://")
    return url


def check(quality: QualitySpec, server: str) -> None:
    """Raise ``ValueError`` for arguments that are not valid. ``server``: URL of the runtime."""
    arguments = quality.arguments
    if quality.scorer == "length":
        length_bounds(arguments)
    elif quality.scorer == "language":
        language_of(arguments)
    elif quality.scorer == "regex":
        patterns_of(arguments)
    elif quality.scorer == "judge":
        judge_url(arguments, server)
