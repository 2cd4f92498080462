"""Write ``sbom.cdx.json``: what the image and the wheel bring along, as a CycloneDX 1.6 bill of materials.

Read are ``requirements.lock`` (names, versions, markers, hashes of the files that may be installed) and
``pyproject.toml`` (which of them are asked for directly). The same input gives the same file: no time, and a serial
number made from the content. ``--check`` writes nothing and ends with 1 when the file is stale.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
SBOM = ROOT / "sbom.cdx.json"
LICENCES = {
    "certifi": "MPL-2.0",
    "cffi": "MIT-0",
    "charset-normalizer": "MIT",
    "click": "BSD-3-Clause",
    "cryptography": "Apache-2.0 OR BSD-3-Clause",
    "googleapis-common-protos": "Apache-2.0",
    "h11": "MIT",
    "h2": "MIT",
    "hpack": "MIT",
    "hyperframe": "MIT",
    "httptools": "MIT",
    "idna": "BSD-3-Clause",
    "msgspec": "BSD-3-Clause",
    "numpy": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    "nvidia-ml-py": "BSD-3-Clause",
    "opentelemetry-api": "Apache-2.0",
    "opentelemetry-exporter-http-transport": "Apache-2.0",
    "opentelemetry-exporter-otlp-common": "Apache-2.0",
    "opentelemetry-exporter-otlp-proto-common": "Apache-2.0",
    "opentelemetry-exporter-otlp-proto-http": "Apache-2.0",
    "opentelemetry-proto": "Apache-2.0",
    "opentelemetry-sdk": "Apache-2.0",
    "opentelemetry-semantic-conventions": "Apache-2.0",
    "prometheus-client": "Apache-2.0 AND BSD-2-Clause",
    "protobuf": "BSD-3-Clause",
    "pycparser": "BSD-3-Clause",
    "pyyaml": "MIT",
    "requests": "Apache-2.0",
    "typing-extensions": "PSF-2.0",
    "urllib3": "MIT",
    "uvicorn": "BSD-3-Clause",
    "uvloop": "MIT OR Apache-2.0",
}
"""SPDX expressions as the packages' metadata give them; a package without one here is refused."""
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?$")
_HASH = re.compile(r"^\s+--hash=sha256:(?P<hash>[0-9a-f]{64})\s*\\?$")
Json = dict[str, Any]


def pins(text: str) -> Iterator[tuple[str, str, str, list[str]]]:
    """(name, version, marker, hashes) of each line of a lock file. Raises ``ValueError`` on any other line."""
    current: tuple[str, str, str, list[str]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pin, digest = _PIN.match(line), _HASH.match(line)
        if pin:
            if current:
                yield current
            current = (pin["name"].lower(), pin["version"], (pin["marker"] or "").strip(), [])
        elif digest and current:
            current[3].append(digest["hash"])
        else:
            raise ValueError(f"{LOCK.name}:{number}: not understood: {line}")
    if current:
        yield current


def component(name: str, version: str, marker: str, hashes: Sequence[str]) -> Json:
    if name not in LICENCES:
        raise ValueError(f"{name}: say its licence in {Path(__file__).name}")
    purl = f"pkg:pypi/{name}@{version}"
    found: Json = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{"expression": LICENCES[name]}],
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(hashes)],
    }
    if marker:
        found["properties"] = [{"name": "windlass:marker", "value": marker}]
    return found


def bill() -> Json:
    """The whole document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    parts = [component(*pin) for pin in pins(LOCK.read_text())]
    asked = {re.split(r"[<>=!~;\[ ]", text, maxsplit=1)[0].lower() for text in project["dependencies"]}
    itself = f"pkg:pypi/windlass@{project['version']}"
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([itself, parts], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": itself,
                "name": "windlass",
                "version": project["version"],
                "licenses": [{"expression": project["license"]}],
                "purl": itself,
            }
        },
        "components": parts,
        "dependencies": [
            {"ref": itself, "dependsOn": [part["bom-ref"] for part in parts if part["name"] in asked]}
        ],
    }


def text() -> str:
    return json.dumps(bill(), indent=2) + "\n"


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
