"""Scorers by length, language, regular expression, Python function and judge model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from windlass.items.quality.arguments import judge_url, language_of, length_bounds, patterns_of
from windlass.items.runtimes.base import LeasedRow, RuntimeContext
from windlass.items.spec import QualitySpec

Scorer = Callable[[LeasedRow, Mapping[str, Any]], float | None]
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_JUDGE_PROMPT = (
    "Rate the quality of the answer from 0 (useless) to 100 (perfect). Reply with the number only.\n\n"
    "Task: {prompt}\n\nAnswer: {text}"
)
_WORDS = {
    "en": "the and of to in is that for it with as on this are be was by an from or at",
    "de": "der die und das ist nicht mit ein eine den von zu im auf für sich dem als auch",
    "fr": "le la les et de des un une est pour dans que qui sur pas avec au ce il plus",
    "es": "el la los las y de un una es para en que con por no se del al lo como",
    "it": "il la le e di un una è per in che con non si del al lo come sono della",
    "pt": "o a os as e de um uma é para em que com não por se do da no como",
    "nl": "de het een en van is dat op te in voor met niet zijn aan er die ook als",
}
_COMMON = {name: frozenset(words.split()) for name, words in _WORDS.items()}
_SCRIPTS = {
    "zh": ("\u4e00", "\u9fff"),
    "ja": ("\u3040", "\u30ff"),
    "ko": ("\uac00", "\ud7af"),
    "ru": ("\u0400", "\u04ff"),
    "el": ("\u0370", "\u03ff"),
    "ar": ("\u0600", "\u06ff"),
    "he": ("\u0590", "\u05ff"),
    "hi": ("\u0900", "\u097f"),
    "th": ("\u0e00", "\u0e7f"),
}


def create(quality: QualitySpec, context: RuntimeContext) -> Scorer:
    """Return the scorer of a batch. Raises ``ValueError`` for arguments that are not valid."""
    arguments = quality.arguments
    field = str(arguments.get("field", ""))
    if not quality.scorer:
        return lambda item, output: number_of(output.get("score"))
    if quality.scorer == "length":
        least, most, unit = length_bounds(arguments)
        return lambda item, output: length_score(text_of(output, field), least, most, unit)
    if quality.scorer == "language":
        language = language_of(arguments)
        return lambda item, output: language_score(text_of(output, field), language)
    if quality.scorer == "regex":
        pattern, forbidden = patterns_of(arguments)

        def by_pattern(item: LeasedRow, output: Mapping[str, Any]) -> float:
            text = text_of(output, field)
            good = pattern.search(text) and not (forbidden and forbidden.search(text))
            return 100.0 if good else 0.0

        return by_pattern
    if quality.scorer == "judge":
        return _judge(arguments, field, context)
    return _function(quality.scorer, context)


def text_of(output: Mapping[str, Any], field: str = "") -> str:
    """Return the text to judge: a named field, ``text``, or the longest text of the output."""
    if field:
        return str(output.get(field, ""))
    if isinstance(output.get("text"), str):
        return output["text"]
    texts = [value for name, value in output.items() if isinstance(value, str) and name != "id"]
    return max(texts, key=len, default="")


def number_of(value: Any) -> float | None:
    """Return a score as a number; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def valid_score(value: float | None) -> float | None:
    """Return a score. Raises ``ValueError`` if it is not from 0 to 100."""
    if value is not None and not 0 <= value <= 100:
        raise ValueError(f"the score {value:g} is not from 0 to 100")
    return value


def length_score(text: str, least: float, most: float, unit: str) -> float:
    """Return 100 within the range, less in proportion to the distance from it."""
    size = len(text.split()) if unit == "words" else len(text)
    if size < least:
        return round(100.0 * size / least, 2)
    return 100.0 if size <= most else round(100.0 * most / size, 2)


def language_score(text: str, language: str) -> float:
    """Return the likelihood of a language from its script or its most common words."""
    script = _SCRIPTS.get(language)
    if script is not None:
        letters = [letter for letter in text if letter.isalpha()]
        inside = sum(script[0] <= letter <= script[1] for letter in letters)
        if language == "ja":
            inside += sum("\u4e00" <= letter <= "\u9fff" for letter in letters) if inside else 0
        return round(100.0 * inside / len(letters), 2) if letters else 0.0
    words = re.findall(r"[^\W\d_]+", text.lower())
    counts = {name: sum(word in common for word in words) for name, common in _COMMON.items()}
    best = max(counts.values(), default=0)
    return round(100.0 * counts[language] / best, 2) if best else 0.0


def _function(reference: str, context: RuntimeContext) -> Scorer:
    from windlass.items.runtimes.python_function import load

    call = load(reference, context.batch.runtime.working_dir)
    return lambda item, output: number_of(call(item.row, output))


def _judge(arguments: Mapping[str, Any], field: str, context: RuntimeContext) -> Scorer:
    from windlass.items.runtimes.http_json import JsonClient

    url = judge_url(arguments, context.batch.runtime.url)
    key = context.environment.get(str(arguments.get("apiKeyEnv") or context.batch.runtime.api_key_env), "")
    client = JsonClient(url, {"Authorization": f"Bearer {key}"} if key else {}, 120.0)
    template = str(arguments.get("prompt") or _JUDGE_PROMPT)
    model = str(arguments.get("model") or context.batch.model)

    def judge(item: LeasedRow, output: Mapping[str, Any]) -> float | None:
        import json

        prompt = template.replace("{prompt}", item.prompt).replace("{text}", text_of(output, field))
        body = {"model": model, "temperature": 0, "messages": [{"role": "user", "content": prompt}]}
        try:
            status, _, answer = client.request("POST", "/chat/completions", body)
        finally:
            client.close()
        if status != 200:
            raise OSError(f"the judge answered {status}: {answer[:200].decode(errors='replace')}")
        match = _NUMBER.search(json.loads(answer)["choices"][0]["message"]["content"])
        return min(100.0, float(match.group())) if match else None

    return judge
