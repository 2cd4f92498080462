"""Output of a benchmark's results: one JSON object for programs, aligned lines for users."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence


def add_output(parser: argparse.ArgumentParser) -> None:
    """The option ``-o json|text``."""
    parser.add_argument("-o", "--output", choices=["json", "text"], default="text")


def show(record: Mapping[str, object], output: str) -> None:
    if output == "json":
        print(json.dumps(record))
        return
    width = max(len(name) for name in record)
    for name, value in record.items():
        print(f"{name:<{width}}  {value}")


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
