"""Data-parallel training of a small network on handwritten digits: one process a rank.

Every rank holds the same parameters and its own quarter of the training images. After each batch the
gradients are averaged over all ranks and all take the same step, so the parameters stay equal; at the
end the ranks prove it to each other. With PyTorch (``--engine torch``, the default where it is
installed) that is DistributedDataParallel over gloo; otherwise NumPy with the ring of ``ring.py``.

The platform gives each process its place: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (plugin
``pytorch``), VC_MASTER_HOSTS and VC_WORKER_HOSTS (plugin ``svc``), CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import os
import socket
import sys
import time
from pathlib import Path

import numpy as np

HIDDEN, CLASSES = 128, 10
DATA = Path(__file__).parent / "data" / "digits.csv.gz"


def main() -> int:
    options = parse_arguments()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    hosts = peers(size)
    introduce(rank, size, hosts)
    images, labels, test_images, test_labels = load()
    started = time.monotonic()
    train = train_torch if options.engine == "torch" else train_numpy
    own = slice(
        rank, len(images) // size * size, size
    )  # equal shares, so that all ranks take equally many steps
    parameters, agree = train(options, rank, size, hosts, images[own], labels[own])
    accuracy = float(np.mean(forward(parameters, test_images)[1].argmax(axis=1) == test_labels))
    digest = hashlib.sha256(b"".join(p.tobytes() for p in parameters)).hexdigest()[:12]
    print(
        f"rank {rank}: parameters {digest}, {'equal on' if agree else 'DIFFERENT between'} all ranks",
        flush=True,
    )
    if rank == 0:
        seconds = time.monotonic() - started
        print(f"trained on {len(images)} images in {seconds:.1f} s, {options.engine}", flush=True)
        print(
            f"test accuracy {100 * accuracy:.2f} % on {len(test_images)} images never trained on", flush=True
        )
    return 0 if agree and accuracy >= options.goal else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    torch_here = importlib.util.find_spec("torch") is not None
    parser.add_argument("--engine", choices=("torch", "numpy"), default="torch" if torch_here else "numpy")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16, help="images a rank takes for one step")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seconds-per-epoch", type=float, default=0.0, help="train no faster than this")
    parser.add_argument("--goal", type=float, default=0.95, help="exit 1 below this test accuracy")
    parser.add_argument(
        "--no-all-reduce", action="store_true", help="each rank for itself: parameters drift apart"
    )
    return parser.parse_args()


def peers(size: int) -> list[str]:
    """The host name of every rank: the master first, then the workers."""
    names = [os.environ.get("VC_MASTER_HOSTS", ""), os.environ.get("VC_WORKER_HOSTS", "")]
    hosts = [host for host in ",".join(names).split(",") if host]
    return hosts if len(hosts) == size else ["localhost"] * size


def named(host: str, address: str) -> str:
    """``worker-1=10.0.0.3``; where the platform gave the address itself, just that."""
    return address if host == address else f"{host.split('.')[0]}={address}"


def introduce(rank: int, size: int, hosts: list[str]) -> None:
    """Name this rank and its peers with the addresses that the platform gave them."""
    from ring import resolve

    deadline = time.monotonic() + 60
    known = [named(host, resolve(host, deadline)) for i, host in enumerate(hosts) if i != rank]
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
    own = resolve(hosts[rank], deadline)
    print(
        f"rank {rank} of {size} on {socket.gethostname()} ({own}), device {device}, peers {' '.join(known)}",
        flush=True,
    )


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images scaled to 0–1 and labels; a fixed random fifth is kept for the test."""
    with gzip.open(DATA, "rt") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.float64)
    order = np.random.default_rng(20260101).permutation(len(table))
    images, labels = table[order, :-1] / 16.0, table[order, -1].astype(int)
    kept = len(table) // 5
    return images[kept:], labels[kept:], images[:kept], labels[:kept]


def initial_parameters() -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [
        rng.normal(0, np.sqrt(2 / 64), (64, HIDDEN)), np.zeros(HIDDEN),
        rng.normal(0, np.sqrt(2 / HIDDEN), (HIDDEN, CLASSES)), np.zeros(CLASSES),
    ]  # fmt: skip


def forward(parameters: list[np.ndarray], images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first, first_bias, second, second_bias = parameters
    hidden = np.maximum(images @ first + first_bias, 0)
    return hidden, hidden @ second + second_bias


def gradients(
    parameters: list[np.ndarray], images: np.ndarray, labels: np.ndarray
) -> tuple[list[np.ndarray], float]:
    """Return the gradients of the mean cross-entropy, by back-propagation, and its value."""
    hidden, scores = forward(parameters, images)
    scores = scores - scores.max(axis=1, keepdims=True)
    probabilities = np.exp(scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(probabilities[rows, labels] + 1e-12).mean())
    delta = probabilities
    delta[rows, labels] -= 1
    delta /= len(labels)
    back = (delta @ parameters[2].T) * (hidden > 0)
    return [images.T @ back, back.sum(axis=0), hidden.T @ delta, delta.sum(axis=0)], loss


def train_numpy(
    options: argparse.Namespace,
    rank: int,
    size: int,
    hosts: list[str],
    images: np.ndarray,
    labels: np.ndarray,
) -> tuple[list[np.ndarray], bool]:
    from ring import Ring

    ring = Ring(rank, hosts) if size > 1 else None
    parameters = initial_parameters()
    shuffle = np.random.default_rng(rank)
    starts = range(0, len(images) - options.batch + 1, options.batch)
    for epoch in range(options.epochs):
        began, loss = time.monotonic(), 0.0
        order = shuffle.permutation(len(images))
        for start in starts:
            chosen = order[start : start + options.batch]
            parts, batch_loss = gradients(parameters, images[chosen], labels[chosen])
            loss += batch_loss / len(starts)
            if ring is not None and not options.no_all_reduce:
                parts = average(ring, parts)
            for parameter, gradient in zip(parameters, parts, strict=True):
                parameter -= options.learning_rate * gradient
        report(options, rank, epoch, loss, began)
    if ring is None:
        return parameters, True
    mean = average(ring, parameters)
    drift = ring.all_reduce(
        np.array([max(np.abs(p - m).max() for p, m in zip(parameters, mean, strict=True))])
    )
    return parameters, bool(drift[0] < 1e-9)


def average(ring: object, parts: list[np.ndarray]) -> list[np.ndarray]:
    """Mean over the ranks of all arrays, sent as one vector."""
    flat = ring.all_reduce(np.concatenate([part.ravel() for part in parts])) / ring.size  # type: ignore[attr-defined]
    ends = np.cumsum([part.size for part in parts])[:-1]
    return [piece.reshape(part.shape) for piece, part in zip(np.split(flat, ends), parts, strict=True)]


def train_torch(
    options: argparse.Namespace,
    rank: int,
    size: int,
    hosts: list[str],
    images: np.ndarray,
    labels: np.ndarray,
) -> tuple[list[np.ndarray], bool]:
    import torch
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
    ).double()
    if size > 1:
        distributed.init_process_group("gloo", rank=rank, world_size=size)
    parallel = DistributedDataParallel(model) if size > 1 and not options.no_all_reduce else model
    optimiser = torch.optim.SGD(model.parameters(), lr=options.learning_rate)
    inputs, targets = torch.from_numpy(images), torch.from_numpy(labels)
    shuffle = np.random.default_rng(rank)
    starts = range(0, len(images) - options.batch + 1, options.batch)
    for epoch in range(options.epochs):
        began, loss = time.monotonic(), 0.0
        order = shuffle.permutation(len(images))
        for start in starts:
            chosen = torch.from_numpy(order[start : start + options.batch])
            optimiser.zero_grad()
            batch_loss = torch.nn.functional.cross_entropy(parallel(inputs[chosen]), targets[chosen])
            batch_loss.backward()
            optimiser.step()
            loss += float(batch_loss) / len(starts)
        report(options, rank, epoch, loss, began)
    own = torch.cat([p.detach().ravel() for p in model.parameters()])
    low, high = own.clone(), own.clone()
    if size > 1:
        distributed.all_reduce(low, op=distributed.ReduceOp.MIN)
        distributed.all_reduce(high, op=distributed.ReduceOp.MAX)
        distributed.destroy_process_group()
    first, first_bias, second, second_bias = (p.detach().numpy() for p in model.parameters())
    return [first.T.copy(), first_bias, second.T.copy(), second_bias], bool((high - low).abs().max() < 1e-9)


def report(options: argparse.Namespace, rank: int, epoch: int, loss: float, began: float) -> None:
    if rank == 0 and (epoch % 10 == 0 or epoch == options.epochs - 1):
        print(f"epoch {epoch:3d}  loss {loss:.4f}", flush=True)
    rest = options.seconds_per_epoch - (time.monotonic() - began)
    if rest > 0:
        time.sleep(rest)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ConnectionError, BrokenPipeError) as error:
        print(f"rank {os.environ.get('RANK', '0')}: lost a peer: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
