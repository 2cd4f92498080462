"""Calls that no job can execute are refused before a job is created."""

from __future__ import annotations

from typing import Any

import pytest

import windlass
from windlass import Executor, submit


def double(number: int) -> int:
    return 2 * number


def test_a_misspelt_option_is_refused_with_the_options():
    with pytest.raises(
        TypeError, match=r"double\(number.*unexpected keyword argument 'gpu'; .*cpus, env, gpu_m"
    ):
        submit(double, 3, gpu=1)


def test_an_executor_refuses_arguments_that_the_function_does_not_take():
    with pytest.raises(TypeError, match="missing a required argument: 'number'"):
        Executor().submit(double)  # type: ignore[call-arg]


def test_a_command_is_not_a_function():
    command: Any = "python train.py"
    with pytest.raises(
        TypeError, match=r"'python train\.py' is not a function; windlass run and windlass submit"
    ):
        submit(command)


def test_arguments_of_map_are_checked_before_anything_is_created():
    for wrong, message in (
        ({"engine": "xx"}, "engine is 'xx': use one of 'auto', 'jobs', 'items'"),
        ({"errors": "no"}, "errors is 'no': use one of 'raise', 'return'"),
        ({"workers": 0}, "workers is 0: it must be at least 1"),
        ({"retries": -1}, "retries is -1: it must be at least 0"),
        ({"timeout": -1.0}, "timeout is -1.0: it must be at least 0"),
        ({"engine": "jobs", "retries": 2}, "need engine='items'"),
    ):
        given: dict[str, Any] = wrong
        with pytest.raises(ValueError, match=message):
            windlass.map(double, [1], **given)
    misspelt: dict[str, Any] = {"gpu": 1}
    with pytest.raises(TypeError, match="map has no option 'gpu': its options are cpus, "):
        windlass.map(double, [1], **misspelt)
