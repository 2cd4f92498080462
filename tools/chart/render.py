"""Write what follows from the chart: its CRDs, and the objects that ``windlass install`` puts into a cluster.

``python tools/chart/render.py`` copies the CRDs of ``windlass crds`` into the chart and renders the chart with its
default values into ``src/windlass/cli/data/install.yaml``, with the bind guard into ``install-bind-guard.yaml``,
where words stand for what it proves itself with, and what the sharing of devices adds into ``install-gpu-sharing.yaml``
(needs helm, built by ``tools/kubernetes/build.sh``). In the schema of the values it writes what may stand in
``settings`` and in ``scheduler.configuration``, as the processes read them; and the dashboard of :mod:`dashboard`.
``--check`` writes nothing and ends with 1 when a file is not what it should be; a test does the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dashboard
import yaml

from windlass.app.settings import FIELDS, Field
from windlass.model.scheduler_config import TOP
from windlass.spi.configuration import ACTIONS

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "windlass"
CRDS = ROOT / "src" / "windlass" / "api" / "crds"
INSTALL = ROOT / "src" / "windlass" / "cli" / "data" / "install.yaml"
GUARDED = INSTALL.with_name("install-bind-guard.yaml")
SHARING = INSTALL.with_name("install-gpu-sharing.yaml")
SCHEMA = CHART / "values.schema.json"
DASHBOARD = CHART / "dashboards" / "windlass.json"
NAMESPACE = "windlass-system"
BY_FLAGS = frozenset(
    {
        "metrics.bind",
        "traces.endpoint",
        "leaderElection.enabled",
        "leaderElection.namespace",
        "scheduler.names",
        "scheduler.configuration",
        "scheduler.withControllers",
        "scheduler.reservationImage",
        "scheduler.reservationPullPolicy",
        "scheduler.reservationPullSecrets",
        "scheduler.reservationRuntimeClass",
        "scheduler.reservationSeconds",
        "scheduler.deviceNames",
        "controllers.progressBind",
        "controllers.progressAddress",
    }
)
"""Settings that the chart says from values of their own, by flags or in the file: in ``settings`` they would say
nothing."""
NOTE = "# Rendered from deploy/helm/windlass by tools/chart/render.py. Change the chart, then `make chart`.\n"


def helm() -> Path | None:
    """The helm that the tests use, if it is there."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(os.environ.get("WINDLASS_TOOLS") or f"{cache}/windlass/tools") / "bin" / "helm"
    return path if os.access(path, os.X_OK) else None


def template(*options: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The objects of the chart, without CRDs. Raises ``CalledProcessError`` with helm's words."""
    argv = [str(helm()), "template", "windlass", str(CHART), "--namespace", namespace, *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def install_text(*options: str) -> str:
    """The objects as ``windlass install`` has them: without the words of helm."""
    found = [without_proof(plain(obj)) for obj in template(*options)]
    texts = [yaml.safe_dump(obj, sort_keys=False, width=110, allow_unicode=True) for obj in found]
    return NOTE + "---\n".join(texts)


def plain(obj: dict[str, Any]) -> dict[str, Any]:
    """The object (changed in place) with the labels that it has without helm."""
    obj["metadata"].pop("annotations", None)  # helm.sh/resource-policy
    labels = obj["metadata"]["labels"]
    del labels["helm.sh/chart"]
    labels["app.kubernetes.io/managed-by"] = "windlass"
    return obj


def without_proof(obj: dict[str, Any]) -> dict[str, Any]:
    """The object (changed in place) with words for the certificate and the token that helm makes each time."""
    kind = obj["kind"]
    if kind == "Secret":
        obj["data"] = {key: key.upper() for key in obj["data"]}
    elif kind == "ValidatingWebhookConfiguration":
        for hook in obj["webhooks"]:
            hook["clientConfig"]["caBundle"] = "CA.CRT"
            hook["clientConfig"]["service"]["path"] = "/bind/TOKEN"
    elif kind == "Deployment":
        notes = obj["spec"]["template"]["metadata"].get("annotations", {})
        notes.update({key: "MARK" for key in notes})
    return obj


def wanted_texts() -> dict[Path, str]:
    """The files that ``windlass install`` reads, and what they have to be."""
    sharing = ("--set", "gpuSharing.enabled=true", "--show-only", "templates/gpusharing.yaml")
    return {
        INSTALL: install_text(),
        GUARDED: install_text("--set", "bindGuard.enabled=true"),
        SHARING: install_text(*sharing),
    }


def schema_text() -> str:
    """The schema of the chart's values: what is there, with the schemas of the files that the values hold."""
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["settings"] = settings_schema()
    keys: dict[str, Any] = {key: {} for key in TOP}
    keys["actions"] = _actions_schema()
    configuration = {"type": "object", "additionalProperties": False, "properties": keys}
    schema["properties"]["scheduler"]["properties"]["configuration"] = configuration
    return json.dumps(schema, indent=2) + "\n"


def _actions_schema() -> dict[str, Any]:
    """Names with commas between them, or a list of names."""
    name = f"\\s*({'|'.join(ACTIONS)})\\s*"
    words = {"type": "string", "pattern": f"^{name}(,{name})*$"}
    return {"anyOf": [words, {"type": "array", "minItems": 1, "items": {"enum": list(ACTIONS)}}]}


def settings_schema() -> dict[str, Any]:
    """Return the schema of the settings file in a cluster."""
    sections: dict[str, Any] = {}
    for field in FIELDS:
        section, _, name = field.path.partition(".")
        if field.path not in BY_FLAGS:
            empty = {"type": "object", "additionalProperties": False, "properties": {}}
            sections.setdefault(section, empty)["properties"][name] = _field_schema(field)
    return {"type": "object", "additionalProperties": False, "properties": sections}


def _field_schema(field: Field) -> dict[str, Any]:
    match field.default:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": field.least, "maximum": field.most}
        case float():
            return {"type": "number", "minimum": field.least, "maximum": field.most}
        case tuple():
            item = {"enum": list(field.choices)} if field.choices else {"type": "string", "minLength": 1}
            return {"type": "array", "items": item}
    return {"enum": list(field.choices)} if field.choices else {"type": "string"}


def crd_files() -> dict[Path, str]:
    """The chart's CRDs and what they have to be: those that ``windlass crds`` prints."""
    return {CHART / "crds" / source.name: source.read_text() for source in sorted(CRDS.glob("*.yaml"))}


def stale(wanted: dict[Path, str]) -> list[str]:
    """Return the files that differ from the wanted content, and superfluous files in
    the chart's ``crds``."""
    wrong = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    wrong += [path for path in sorted((CHART / "crds").glob("*")) if path not in crd_files()]
    return [str(path.relative_to(ROOT)) for path in wrong]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when a file is stale")
    options = parser.parse_args(arguments)
    if helm() is None:
        print("no helm: build it with tools/kubernetes/build.sh", file=sys.stderr)
        return 3
    wanted = {**crd_files(), SCHEMA: schema_text(), DASHBOARD: dashboard.text(), **wanted_texts()}
    wrong = stale(wanted)
    if not options.check:
        for name in wrong:
            path = ROOT / name
            if path not in wanted:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
    for name in wrong:
        print(name)
    return 1 if options.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
