"""Published examples of Argo reach the phases that Argo documents, with local processes for their images."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import field_manifests
import workflow_examples
import yaml
from workflow_player import Outcome, Player, Surroundings, fails

from windlass.workflow.checks.validation import check_spec
from windlass.workflow.run import Start

PAGE = Path(__file__).resolve().parents[2] / "docs/operations/workflow-examples.md"
MAPPED = {"python": sys.executable, "cowsay": "echo", "bash": "sh"}
"""Commands of images → commands of this machine."""

PHASES = {
    "01-dag-diamond": "Succeeded",
    "02-dag-enhanced-depends": "Succeeded",
    "03-loops-param-result": "Succeeded",
    "04-conditionals-complex": "Succeeded",
    "07-memoize-simple": "Succeeded",
    "08-exit-handlers": "Failed",
    "09-semaphore": "Succeeded",
    "10-ml-pipeline-tfjob": "Succeeded",
    "11-volcano-job-dag": "Succeeded",
    "12-slack-exit-handler": "Failed",
}
"""File → phase by the index of the files. Those that are left out need a cluster, a token or chance."""


def local_process(folder: Path) -> Callable[[Start], Outcome]:
    """Return a script for a player that runs the commands of containers here."""

    programs = folder / "bin"
    programs.mkdir()
    (programs / "sleep").symlink_to(shutil.which("true") or "/bin/true")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ.get('PATH', '')}"}

    def run(start: Start) -> Outcome:
        template = start.template
        container = template.get("container") or template.get("script")
        if container is None:
            return Outcome()
        command = [str(word) for word in container.get("command") or ()]
        if "script" in template:
            (folder / "source").write_text(container["source"])
            command.append("source")
        command += [str(word) for word in container.get("args") or ()]
        command[0] = MAPPED.get(command[0], command[0])
        if "data-ingestion" in " ".join(command) or "model-selection" in " ".join(command):
            command = ["true"]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, env=environment
        )
        parameters = {}
        for parameter in (template.get("outputs") or {}).get("parameters") or ():
            path = folder / (parameter.get("valueFrom") or {}).get("path", "none").lstrip("/")
            if path.exists():
                parameters[parameter["name"]] = path.read_text().strip()
        if done.returncode:
            return fails(done.returncode, result=done.stdout.strip(), parameters=parameters)
        return Outcome(result=done.stdout.strip(), parameters=parameters)

    return run


class _Everything(dict):
    """One script for all templates."""

    def __init__(self, script: Callable[[Start], Outcome]) -> None:
        self._script = script

    def get(self, key: object, default: object = None) -> Callable[[Start], Outcome]:
        return self._script


def play(manifest: str, script: Callable[[Start], Outcome]) -> Player:
    surroundings = Surroundings(config=lambda name, key: "3" if key == "workflow" else None)
    return Player(manifest, _Everything(script), surroundings=surroundings).play()


def test_restated_examples_reach_their_phases(tmp_path: Path) -> None:
    script = local_process(tmp_path)
    assert len(workflow_examples.EXAMPLES) >= 30
    for name, (_, phase, nodes) in workflow_examples.EXAMPLES.items():
        manifest = workflow_examples.manifest(name)
        assert check_spec(yaml.safe_load(manifest)["spec"]) == [], name
        played = play(manifest, script)
        assert (name, played.phase) == (name, phase), played.message
        assert {key: played.phases().get(key) for key in nodes} == nodes, name


def test_page_lists_the_examples() -> None:
    page = PAGE.read_text()
    for name, (_, phase, nodes) in workflow_examples.EXAMPLES.items():
        shown = ", ".join(f"{key} {value}" for key, value in nodes.items())
        assert f"| {name} | {phase} | {shown} |\n" in page


def test_published_files_reach_their_phases(tmp_path: Path) -> None:
    script = local_process(tmp_path)
    files = field_manifests.family("argo")
    found = {}
    for name in PHASES:
        text = files[name].read_text()
        assert check_spec(yaml.safe_load(text)["spec"]) == [], name
        found[name] = play(text, script).phase
    assert found == PHASES
