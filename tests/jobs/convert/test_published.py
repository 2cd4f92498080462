"""Published manifests of job kinds are converted to every kind, or refused with a reason."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from field_outcomes import FOLDER

from windlass.api.resources import TRAIN_JOBS, by_kind
from windlass.cli.commands.jobs.convert import refusals
from windlass.jobs.convert.read import Unconvertible, is_readable, read
from windlass.jobs.convert.write import TARGETS, write

PLACEHOLDERS = {"jobset/06-tunix-tpu-template.yaml", "kubeflow/13-fsdp-llama3-8b.yaml"}
"""Templates that a program fills in: the number of pods is text."""
INVALID = {"volcano/08-invalid-minavailable.yaml"}


def test_published_jobs_are_converted_or_refused_with_a_reason() -> None:
    if not FOLDER.exists():
        pytest.skip("needs ../shared/field/manifests")
    converted = refused = 0
    for path in sorted(FOLDER.glob("*/*.yaml")):
        name = str(path.relative_to(FOLDER))
        documents: list[dict[str, Any]] = [
            one for one in yaml.safe_load_all(path.read_text()) if isinstance(one, dict) and "kind" in one
        ]
        runtimes = {one["metadata"]["name"]: one for one in documents if "TrainingRuntime" in one["kind"]}
        for obj in documents:
            resource = by_kind(obj.get("apiVersion", ""), obj["kind"])
            if resource is None or not is_readable(resource) or name in PLACEHOLDERS:
                continue
            for target, (wanted, _) in TARGETS.items():
                try:
                    job = read(resource, copy.deepcopy(obj), runtimes)
                    pods = job.pods
                    found = write(job, target)
                except Unconvertible:
                    refused += 1
                    continue
                converted += 1
                assert not refusals(wanted, found) or name in INVALID, (name, target)
                if wanted is not TRAIN_JOBS:
                    assert read(wanted, found).pods == pods, (name, target)
    assert converted > 130
    assert refused < converted / 3
