"""Calls that no job can execute are refused before a job is created."""

from __future__ import annotations

from typing import Any

import pytest

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
        Executor().submit(double)  # pyright: ignore[reportCallIssue]


def test_a_command_is_not_a_function():
    command: Any = "python train.py"
    with pytest.raises(
        TypeError, match=r"'python train\.py' is not a function; windlass run and windlass submit"
    ):
        submit(command)
