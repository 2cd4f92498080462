"""Recommenders that users write: the class AutoScaler and its free names."""

from pathlib import Path

import acceptance_manifests
import pytest

import kurator_sdk
from windlass.scaling.plugin import AutoScaler, PluginError, load_plugin
from windlass.scaling.recommendation import Replicas

DOUBLE_OR_HALVE = """
from kurator_sdk import AutoScaler

class Mine(AutoScaler):
    def calculate_desired_replicas(self, metrics):
        load = metrics['nvidia_gpu_utilization']
        if load > 0.8 and metrics['pending_aigc_jobs'] > 0:
            return min(current_replicas * 2, max_replicas)
        if load < 0.3:
            return max(current_replicas // 2, min_replicas)
        return current_replicas
"""


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    (folder / name).write_text(text)
    return name


@pytest.mark.parametrize(
    ("load", "pending", "replicas", "wanted"),
    [
        (0.81, 1, Replicas(4, 1, 6), 6),
        (0.81, 0, Replicas(4, 1, 6), 4),
        (0.8, 5, Replicas(4, 1, 6), 4),
        (0.29, 7, Replicas(5, 2, 6), 2),
        (0.29, 7, Replicas(5, 1, 6), 2),
        (0.3, 7, Replicas(4, 1, 6), 4),
    ],
)
def test_the_three_names_are_globals_of_the_users_module(
    tmp_path: Path, load: float, pending: int, replicas: Replicas, wanted: int
) -> None:
    plugin = load_plugin(write(tmp_path, DOUBLE_OR_HALVE), tmp_path)
    found = plugin.recommend({"nvidia_gpu_utilization": load, "pending_aigc_jobs": pending}, replicas)
    assert (found.replicas, found.error) == (wanted, "")


def test_the_names_are_set_anew_before_each_call_and_attributes_too(tmp_path: Path) -> None:
    text = DOUBLE_OR_HALVE.replace("return current_replicas", "return self.current_replicas")
    plugin = load_plugin(write(tmp_path, text) + ":Mine", tmp_path)
    metrics = {"nvidia_gpu_utilization": 0.5, "pending_aigc_jobs": 0}
    assert [plugin.recommend(metrics, Replicas(n, 1, 9)).replicas for n in (3, 7, 2)] == [3, 7, 2]


def test_a_name_that_the_module_defines_is_left_alone(tmp_path: Path) -> None:
    plugin = load_plugin(write(tmp_path, "max_replicas = 3\n" + DOUBLE_OR_HALVE), tmp_path)
    found = plugin.recommend({"nvidia_gpu_utilization": 0.9, "pending_aigc_jobs": 1}, Replicas(4, 1, 50))
    assert found.replicas == 3


def test_the_arithmetic_names_what_the_class_read(tmp_path: Path) -> None:
    plugin = load_plugin(write(tmp_path, DOUBLE_OR_HALVE), tmp_path)
    metrics = {"nvidia_gpu_utilization": 0.81, "pending_aigc_jobs": 1, "unused": 5}
    found = plugin.recommend(metrics, Replicas(4, 1, 6))
    assert found.arithmetic == "Mine (nvidia_gpu_utilization 0.81, pending_aigc_jobs 1) of 4 replicas = 6"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise RuntimeError('no idea')", "RuntimeError: no idea"),
        ("return float('nan')", "ValueError: the result is nan"),
        ("return 'many'", "TypeError: the result 'many' is no number"),
        ("return metrics['gpu_temp']", "metric 'gpu_temp' has no value; reported: nvidia_gpu_utilization"),
    ],
)
def test_a_failing_class_keeps_the_replicas_and_says_why(tmp_path: Path, body: str, error: str) -> None:
    text = f"""
from kurator_sdk import AutoScaler
class Broken(AutoScaler):
    def calculate_desired_replicas(self, metrics):
        {body}
"""
    found = load_plugin(write(tmp_path, text), tmp_path).recommend(
        {"nvidia_gpu_utilization": 1}, Replicas(4, 1, 6)
    )
    assert (found.replicas, found.error) == (4, error)


@pytest.mark.parametrize(
    ("text", "reference", "part"),
    [
        (None, "absent.py", "absent.py is not a file"),
        ("x = (", "mine.py", "mine.py cannot be imported: SyntaxError"),
        ("import nothing_of_this_name", "mine.py", "cannot be imported: ModuleNotFoundError"),
        ("x = 1", "mine.py", "mine.py has no class deriving from AutoScaler"),
        (DOUBLE_OR_HALVE, "mine.py:Yours", "mine.py has no class Yours that derives from AutoScaler: Mine"),
        (DOUBLE_OR_HALVE + "\nclass Other(Mine):\n    pass\n", "mine.py", "several classes"),
    ],
)
def test_what_cannot_be_loaded_is_told(tmp_path: Path, text: str | None, reference: str, part: str) -> None:
    if text is not None:
        write(tmp_path, text)
    with pytest.raises(PluginError, match=part.replace("(", r"\(")):
        load_plugin(reference, tmp_path)


def test_kurator_sdk_is_the_same_class() -> None:
    assert kurator_sdk.AutoScaler is AutoScaler


def test_the_users_class_runs_as_it_stands() -> None:
    plugin = load_plugin("autoscaler_example.py", acceptance_manifests.folder() / "code")
    found = plugin.recommend({"nvidia_gpu_utilization": 0.81, "pending_aigc_jobs": 1}, Replicas(4, 1, 6))
    assert (plugin.name, found.replicas) == ("AIGCAutoScaler", 6)
