"""The Dockerfile, the lock file that it installs, and the bill of materials."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import sbom  # noqa: E402


def asked() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {re.split(r"[<>=]", text, maxsplit=1)[0].lower() for text in project["dependencies"]}


def locked() -> dict[str, set[str]]:
    """Return NAME==VERSION → hashes of the lock that the image installs."""
    found: dict[str, set[str]] = {}
    hashes: set[str] = set()
    for line in sbom.LOCK.read_text().splitlines():
        if pin := re.match(r"\S+==[^\s;]+", line):
            hashes = found[pin[0]] = set()
        elif digest := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            hashes.add(digest[1])
    return found


def test_the_bill_is_fresh() -> None:
    assert sbom.SBOM.read_text() == sbom.text(), "run: make lock"


def test_the_bill_names_every_dependency_once_with_hash_and_licence() -> None:
    bill = json.loads(sbom.SBOM.read_text())
    parts = {part["bom-ref"]: part for part in bill["components"]}
    assert len(parts) == len(bill["components"])
    assert {part["name"] for part in parts.values()} >= asked()
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    itself = bill["metadata"]["component"]["bom-ref"]
    assert {parts[ref]["name"] for ref in needs[itself]} == asked()
    assert needs.keys() == {itself, *parts}
    assert "pkg:pypi/cffi@" in "".join(
        ref for part in parts.values() if part["name"] == "cryptography" for ref in needs[part["bom-ref"]]
    )
    lock = locked()
    for part in parts.values():
        hashes = {entry["content"] for entry in part["hashes"]}
        assert hashes == lock.pop(f"{part['name']}=={part['version']}")
        assert hashes
        assert part["licenses"][0]["expression"]
        assert part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}"
    assert not lock


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("name @ file:///somewhere", "name is not pinned with hashes"),
        ("name==1", "name is not pinned with hashes"),
        ("name>=1 --hash=sha256:" + "0" * 64, "name is not pinned with hashes"),
        ("new-package==1 --hash=sha256:" + "0" * 64, "new-package: add its licence"),
        ("!", "not every line of 1 is a package"),
    ],
)
def test_a_line_that_cannot_be_in_the_bill_is_an_error(tmp_path: Path, line: str, message: str) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"{line}\n")
    with pytest.raises(ValueError, match=message):
        sbom.bill(lock)


def test_both_locks_hold_the_same_versions() -> None:
    everything = set(re.findall(r"^(\S+==\S+)", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE))
    shipped = locked().keys()
    assert shipped
    assert shipped <= everything


def test_the_image_runs_as_nobody_and_from_what_is_locked() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    installed = yaml.safe_load_all((ROOT / "src/windlass/cli/data/install.yaml").read_text())
    (user,) = {
        obj["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
        for obj in installed
        if obj["kind"] == "Deployment"
    }
    assert users == [f"{user}:{user}"]
    assert sum(line.startswith("FROM ") for line in lines) == 2
    assert "--require-hashes" in "\n".join(lines)
    copied = {word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    sources = {word.removeprefix("./") for word in copied if not word.startswith(("--", "/opt"))}
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, f"{source} is not in the build's context"
