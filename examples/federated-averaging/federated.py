"""Federated averaging: two members train one model, and only its weights leave each member.

    python federated.py share [FOLDER]      write the data of the members below FOLDER
    python federated.py run [FOLDER]        submit the workflow and print the accuracies
    python federated.py workflow            print it as YAML, which workflow.yaml is

A member stands for a cluster of its own. Here it is a pool of nodes (label federation/NAME=true)
with a folder of data that is mounted into the pods of this member alone.
"""

import gzip
import random
import sys
from pathlib import Path

from windlass.sdk.workflows import DAG, Artifact, Workflow, script

MEMBERS = ("north", "south")
ROUNDS = 4
FOLDER = "/tmp/federated-averaging"
DIGITS = Path(__file__).parent.parent / "01-distributed-digits/data/digits.csv.gz"
WEIGHTS = Artifact("weights", path="/tmp/weights.json")
START = Artifact("start", path="/tmp/start.json")


def share(folder: Path) -> None:
    """Give each member images of its own: the north has mostly digits below 5, the south the others."""
    rows = gzip.decompress(DIGITS.read_bytes()).decode().split()
    random.Random(1).shuffle(rows)
    for place, member in enumerate(MEMBERS):
        own = [row for row in rows if (int(row[-1]) >= 5) == (place == 1)]
        (folder / member).mkdir(parents=True, exist_ok=True)
        (folder / member / "digits.csv").write_text("\n".join(own[:-100]) + "\n")
        (folder / member / "test.csv").write_text("\n".join(own[-100:]) + "\n")


def train(start: str, member: str, epochs: int) -> int:
    """Train on the member's own data, from the common weights on; return the number of images."""
    import json
    import math

    with open(f"/data/{member}/digits.csv") as file:
        table = [[int(cell) for cell in line.split(",")] for line in file]
    with open(start) as file:
        text = file.read()
    weights = json.loads(text) if text.strip() else [[0.0] * 65 for _ in range(10)]
    for _ in range(epochs):
        for *pixels, digit in table:
            image = [pixel / 16 for pixel in pixels] + [1.0]
            scores = [math.exp(sum(w * x for w, x in zip(row, image, strict=True))) for row in weights]
            for number, row in enumerate(weights):
                step = 0.05 * (scores[number] / sum(scores) - (number == digit))
                weights[number] = [w - step * x for w, x in zip(row, image, strict=True)]
    with open("/tmp/weights.json", "w") as file:
        json.dump([[round(w, 4) for w in row] for row in weights], file)
    return len(table)


def average(first: str, second: str, counts):
    """Average the weights of the members, each by its number of images."""
    import json

    given = []
    for path in (first, second):
        with open(path) as file:
            given.append(json.load(file))
    a, b = (count / sum(counts) for count in counts)
    mean = [
        [round(a * x + b * y, 4) for x, y in zip(*rows, strict=True)] for rows in zip(*given, strict=True)
    ]
    with open("/tmp/weights.json", "w") as file:
        json.dump(mean, file)
    print("averaged by", counts)


def evaluate(weights: str, member: str) -> str:
    """Return the accuracy on the member's own test images."""
    import json

    with open(weights) as file:
        model = json.load(file)
    right = total = 0
    with open(f"/data/{member}/test.csv") as file:
        for line in file:
            *pixels, digit = (int(cell) for cell in line.split(","))
            image = [pixel / 16 for pixel in pixels] + [1.0]
            scores = [sum(w * x for w, x in zip(row, image, strict=True)) for row in model]
            right += scores.index(max(scores)) == digit
            total += 1
    return f"{100 * right / total:.1f}"


def build(folder: str = FOLDER, rounds: int = ROUNDS, epochs: int = 1) -> Workflow:
    """Return the workflow of the federation. ``folder``: below it are the data of each member."""
    places = {one: f"{{{{workflow.parameters.data}}}}/{one}" for one in MEMBERS}
    volumes = [{"name": one, "hostPath": {"path": place}} for one, place in places.items()]
    workflow = Workflow("federated-averaging", arguments={"data": folder}, fields={"volumes": volumes})
    with workflow:
        trains, tests = {}, {}
        for member in MEMBERS:
            inside = {
                "mounts": {f"/data/{member}": member},
                "fields": {"nodeSelector": {f"federation/{member}": "true"}},
            }
            made = script(name=f"train-{member}", artifacts=[START], outputs=[WEIGHTS], **inside)
            trains[member] = made(train)
            read = Artifact("weights", path="/tmp/model.json")
            tests[member] = script(name=f"test-{member}", artifacts=[read], **inside)(evaluate)
        parts = [Artifact(name, path=f"/tmp/{name}.json") for name in ("first", "second")]
        joined = script(name="average", artifacts=parts, outputs=[WEIGHTS])(average)
        with DAG("main"):
            common = ""
            alone = {
                member: trains[member](
                    name=f"{member}-alone", start="", member=member, epochs=rounds * epochs
                )
                for member in MEMBERS
            }
            for number in range(1, rounds + 1):
                ends = [
                    trains[member](name=f"{member}-{number}", start=common, member=member, epochs=epochs)
                    for member in MEMBERS
                ]
                counts = f"[{ends[0].result}, {ends[1].result}]"
                weights = [end.artifact("weights") for end in ends]
                mean = joined(name=f"average-{number}", first=weights[0], second=weights[1], counts=counts)
                common = mean.artifact("weights")
            for member in MEMBERS:
                for other in MEMBERS:  # the weights of one member alone, for comparison
                    tests[member](
                        name=f"{member}-of-{other}",
                        weights=alone[other].artifact("weights"),
                        member=member,
                    )
                tests[member](name=f"{member}-of-all", weights=common, member=member)
    return workflow


def main() -> None:
    command = sys.argv[1]
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else FOLDER).absolute()
    if command == "share":
        share(folder)
    elif command == "workflow":
        print(build().to_yaml(), end="")
    else:
        run = build(str(folder)).submit().wait()
        for member in MEMBERS:
            for model in (*MEMBERS, "all"):
                print(f"images of the {member}, weights of {model}: {run.result(f'{member}-of-{model}')} %")


if __name__ == "__main__":
    main()
