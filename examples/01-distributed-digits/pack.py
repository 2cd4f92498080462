"""Print ConfigMap ``digits``: the training program and its data, ready for ``apply -f -``.

python pack.py | windlass apply -f -      (or kubectl apply --server-side -f -)
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

HERE = Path(__file__).parent


def config_map() -> dict:
    """Text files as ``data``, the compressed table as ``binaryData``."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "digits"},
        "data": {name: (HERE / name).read_text() for name in ("train.py", "ring.py")},
        "binaryData": {
            "digits.csv.gz": base64.b64encode((HERE / "data" / "digits.csv.gz").read_bytes()).decode()
        },
    }


if __name__ == "__main__":
    print(json.dumps(config_map()))
