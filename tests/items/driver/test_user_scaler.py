"""Class of a user in a process of its own: answers, failures and time limit."""

from __future__ import annotations

import asyncio
from typing import Any

from windlass.items.driver.scaler import ScalerRequest, UserScaler

CLASS = """
from kurator_sdk import AutoScaler
print("a word on standard output is no answer")

class Mine(AutoScaler):
    calls = 0

    def calculate_desired_replicas(self, metrics):
        self.calls += 1
        load = metrics["nvidia_gpu_utilization"]
        if load == 0.5:
            return self.calls
        if load == 0.6:
            return float("nan")
        if load == 0.7:
            import os
            os._exit(7)
        while load == 0.9:
            pass
        return min(current_replicas * 2, max_replicas)
"""


def request(load: float | None, **plugin: str) -> ScalerRequest:
    metrics = {} if load is None else {"nvidia_gpu_utilization": load}
    place = plugin or {"source": CLASS, "name": "mine.py"}
    return ScalerRequest(metrics, {"current": 4, "minimum": 1, "maximum": 6}, place)


def test_class_runs_apart_and_its_failures_are_answers():
    async def run() -> list[dict[str, Any]]:
        scaler = UserScaler(call_seconds=60)
        try:
            found = [await scaler.recommend(request(load)) for load in (0.8, 0.5, 0.6, None, 0.7, 0.5)]
            bad = {"source": "x = (", "name": "bad.py"}
            found += [
                await scaler.recommend(request(0.8, **bad)),
                await scaler.recommend(request(0.8, reference="no.such.module:Mine")),
            ]
            await scaler.recommend(request(0.8))
            scaler._call_seconds = 0.2
            return [*found, await scaler.recommend(request(0.9))]
        finally:
            await scaler.close()

    doubled, kept, nan, missing, died, again, syntax, absent, slow = asyncio.run(run())
    assert (doubled["replicas"], doubled["reads"]) == (6, ["nvidia_gpu_utilization"])
    assert kept["replicas"] == 2  # what the object keeps is there at the next call
    assert (nan["replicas"], nan["error"]) == (4, "ValueError: the result is nan")
    assert missing["error"].startswith("metric 'nvidia_gpu_utilization' has no value")
    assert died == {"error": "the process of the class ended with code 7"}
    assert again["replicas"] == 1  # a new process, a new object
    assert syntax["error"].startswith("bad.py cannot be imported: SyntaxError")
    assert "No module named 'no'" in absent["error"]
    assert slow == {"error": "the class did not answer within 0.2 s"}


def test_trial_calls_a_new_object_of_the_last_class():
    async def run() -> list[dict[str, Any]]:
        scaler = UserScaler(call_seconds=60)
        trial = ScalerRequest({"nvidia_gpu_utilization": 0.5}, request(0.5).replicas, trial=True)
        try:
            found = [await scaler.recommend(trial)]
            return [*found, *[await scaler.recommend(one) for one in (request(0.5), trial, request(0.5))]]
        finally:
            await scaler.close()

    early, first, tried, second = asyncio.run(run())
    assert early == {"error": "no class has been called yet"}
    assert [one["replicas"] for one in (first, tried, second)] == [1, 1, 2]
