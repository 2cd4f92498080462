"""Write ``sbom.cdx.json``: CycloneDX bill of materials of the image and the wheel.

cyclonedx-py makes two bills, which are joined here. That of ``requirements.lock`` has
names, versions and hashes of the files that may be installed. That of the virtual
environment, which has the same packages, has licences and dependencies. The same input
gives the same file. With ``--check`` nothing is written, and the exit status is 1 if the
file is stale.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = ROOT / "pyproject.toml"
LOCK = ROOT / "requirements.lock"
SBOM = ROOT / "sbom.cdx.json"
LICENCES = {
    "cloudpickle": "BSD-3-Clause",
    "python-multipart": "Apache-2.0",
    "google-re2": "BSD-3-Clause",
    "nvidia-ml-py": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
    "uvloop": "MIT OR Apache-2.0",
}
"""SPDX expressions of packages without complete licence metadata."""
_MARKER = re.compile(r";\s*(?P<marker>.+?)\s+--hash=")
Json = dict[str, Any]


def cyclonedx(*arguments: str) -> Json:
    """Return the bill that cyclonedx-py makes. Raises ``ValueError`` if it makes none."""
    command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", *arguments]
    # Not validated here: ``text`` validates the joined bill, and the validator takes 3 s to load.
    options = ["--pyproject", str(PYPROJECT), "--sv", "1.6", "--output-reproducible", "--no-validate"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"cyclonedx-py {arguments[0]}: {done.stderr.strip()}")
    return json.loads(done.stdout)


@functools.cache
def environment() -> Json:
    """Return the bill of the virtual environment."""
    return cyclonedx("environment", sys.executable)


def normalized(name: str) -> str:
    """Return the name of a package as it is written in lock files."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(name: str, declared: Sequence[Json]) -> str:
    """Return the SPDX expression of a package. Raises ``ValueError`` if there is none."""
    found = [
        entry.get("expression") or entry.get("license", {}).get("id")
        for entry in declared
        if "expression" in entry or "id" in entry.get("license", {})
    ]
    if name not in LICENCES and len(found) != 1:
        raise ValueError(f"{name}: add its licence to {Path(__file__).name}")
    return LICENCES.get(name) or found[0]


def component(part: Json, licences: Mapping[str, Sequence[Json]]) -> Json:
    """Return a package of the lock with its licence. Raises ``ValueError`` if it is not pinned.

    Its hashes stand at the package itself. cyclonedx-py puts them below the address of a
    package index, which differs between installations.
    """
    name = part["name"]
    references = part.pop("externalReferences", [])
    hashes = [entry for reference in references for entry in reference.get("hashes", ())]
    if "version" not in part or not hashes:
        raise ValueError(f"{LOCK.name}: {name} is not pinned with hashes: {part['description']}")
    part["hashes"] = hashes
    marker = _MARKER.search(part.pop("description"))
    if marker:
        part["properties"] = [{"name": "windlass:marker", "value": marker["marker"]}]
    part["licenses"] = [{"expression": licence(name, licences.get(name, ()))}]
    part["bom-ref"] = part["purl"]
    return part


def bill(lock: Path = LOCK) -> Json:
    """Return the whole document. Raises ``ValueError``."""
    found = cyclonedx("requirements", str(lock))
    requirements = re.findall(r"^[^\s#-].*", lock.read_text(), re.MULTILINE)
    if len(requirements) != len(found.get("components", ())):
        raise ValueError(f"{lock.name}: not every line of {len(requirements)} is a package")
    installed = environment()
    licences = {normalized(part["name"]): part.get("licenses", []) for part in installed["components"]}
    parts = found["components"] = [component(part, licences) for part in found["components"]]

    itself = found["metadata"]["component"]
    itself["bom-ref"] = itself["purl"] = f"pkg:pypi/{itself['name']}@{itself['version']}"
    direct = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    needs = {
        normalized(entry["ref"].split("==")[0]): [
            normalized(ref.split("==")[0]) for ref in entry["dependsOn"]
        ]
        for entry in installed["dependencies"]
        if "dependsOn" in entry
    }
    needs[itself["name"]] = [normalized(re.split(r"[<>=!~;\[ ]", text, maxsplit=1)[0]) for text in direct]
    found["dependencies"] = [
        {
            "ref": part["bom-ref"],
            "dependsOn": [
                other["bom-ref"] for other in parts if other["name"] in needs.get(part["name"], ())
            ],
        }
        for part in (itself, *parts)
    ]
    content = json.dumps([parts, found["dependencies"]], sort_keys=True)
    found["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    return found


def text() -> str:
    """Return the content of the file. Raises ``ValueError``."""
    # Takes seconds, which each worker of the tests would spend on the import of this module.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    written = json.dumps(bill(), indent=2) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(written):
        raise ValueError(f"not a bill of CycloneDX 1.6: {error}")
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when the file is stale")
    options = parser.parse_args(arguments)
    wanted = text()
    fresh = SBOM.is_file() and SBOM.read_text() == wanted
    if not options.check:
        SBOM.write_text(wanted)
    return 1 if options.check and not fresh else 0


if __name__ == "__main__":
    sys.exit(main())
