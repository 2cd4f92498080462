"""Drawing of docs/images/windlass.svg: users, the Kubernetes API, and the processes."""

from __future__ import annotations

from pathlib import Path

WIDTH, HEIGHT = 860, 400
INK, LINE, PAPER = "#1c2733", "#5b7083", "#ffffff"
FILL = {"user": "#eef3f8", "wire": "#dcebfa", "core": "#fdf0d5", "work": "#e3f4e6"}


def box(x: int, y: int, width: int, height: int, kind: str, title: str, *lines: str) -> str:
    text = [
        f'<text x="{x + width / 2}" y="{y + 22}" font-weight="600" text-anchor="middle">{title}</text>',
        *(
            f'<text x="{x + width / 2}" y="{y + 41 + 16 * i}" font-size="12" fill="{LINE}" '
            f'text-anchor="middle">{line}</text>'
            for i, line in enumerate(lines)
        ),
    ]
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" '
        f'fill="{FILL[kind]}" stroke="{LINE}"/>' + "".join(text)
    )


def arrow(x1: int, y1: int, x2: int, y2: int, both: bool = False) -> str:
    start = ' marker-start="url(#tip)"' if both else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{LINE}" marker-end="url(#tip)"{start}/>'


def picture() -> str:
    parts = [
        box(20, 20, 190, 62, "user", "researcher", "windlass run --gpus 4"),
        box(230, 20, 190, 62, "user", "platform engineer", "kubectl · queues · quota"),
        box(440, 20, 190, 62, "user", "your manifests", "Volcano Job, PodGroup, Pod"),
        box(650, 20, 190, 62, "user", "on a cluster", "kube-apiserver instead"),
        box(
            20,
            130,
            820,
            62,
            "wire",
            "the Kubernetes API",
            "embedded server on SQLite, or a real kube-apiserver",
        ),
        box(20, 240, 250, 62, "core", "controllers", "Job → PodGroup → pods"),
        box(305, 240, 250, 62, "core", "scheduler", "gangs, queues, pending reasons"),
        box(590, 240, 250, 62, "work", "node agent", "processes, devices, logs"),
        box(590, 330, 250, 50, "work", "rank 0 · 1 · 2 · 3"),
        *(arrow(x, 82, x, 130) for x in (115, 325, 535)),
        arrow(745, 130, 745, 82),
        *(arrow(x, 192, x, 240, both=True) for x in (145, 430, 715)),
        arrow(715, 302, 715, 330),
        f'<text x="305" y="345" font-size="13" fill="{INK}">All or nothing: a gang starts as a whole,</text>',
        f'<text x="305" y="363" font-size="13" fill="{INK}">or waits, with all reasons shown.</text>',
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="15" fill="{INK}">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>' + "".join(parts) + "</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).resolve().parent.parent.joinpath("docs/images/windlass.svg").write_text(picture())
