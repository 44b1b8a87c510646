"""Draws docs/pictures/architecture.svg: one operator, two homes. Text is kept as text, so that it can be searched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

TARGET = Path(__file__).parents[1] / "docs" / "pictures" / "architecture.svg"
WIDTH, HEIGHT = 960, 560
STYLE = """
  text { font: 14px system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif; fill: #1f2933; }
  .title { font-weight: 600; font-size: 15px; }
  .small { font-size: 12px; fill: #52606d; }
  .box { fill: #ffffff; stroke: #9aa5b1; stroke-width: 1.2; }
  .ours { fill: #e6f2ff; stroke: #2f6fb3; stroke-width: 1.4; }
  .home { fill: #f7f9fb; stroke: #cbd2d9; stroke-width: 1.2; }
  .pod { fill: #eaf7ee; stroke: #3a8f5c; stroke-width: 1.2; }
  .line { stroke: #52606d; stroke-width: 1.4; fill: none; marker-end: url(#tip); }
  .both { stroke: #2f6fb3; stroke-width: 1.6; fill: none; marker-end: url(#tip); marker-start: url(#tail); }
"""


@dataclass(frozen=True, slots=True)
class Box:
    x: int
    y: int
    w: int
    h: int
    title: str = ""
    lines: tuple[str, ...] = ()
    kind: str = "box"

    def drawn(self) -> Iterator[str]:
        yield f'<rect class="{self.kind}" x="{self.x}" y="{self.y}" width="{self.w}" height="{self.h}" rx="8"/>'
        middle = self.x + self.w // 2
        if self.title:
            yield _text(middle, self.y + 22, self.title, "title")
        for number, line in enumerate(self.lines):
            yield _text(middle, self.y + 42 + 17 * number, line, "small")


def _text(x: int, y: int, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="middle">{escape(text)}</text>'


def _line(kind: str, *points: tuple[int, int]) -> str:
    path = " L ".join(f"{x} {y}" for x, y in points)
    return f'<path class="{kind}" d="M {path}"/>'


BOXES = (
    Box(40, 24, 880, 150, "", (), "ours"),
    Box(60, 60, 190, 96, "observe", ("caches over watches,", "one for each kind,", "shared by all controllers")),
    Box(275, 60, 190, 96, "plan", ("pure: same view, same plan;", "one small file for", "each framework")),
    Box(490, 60, 190, 96, "apply", ("status first, then deletes,", "companions, Services, pods;", "events last")),
    Box(705, 60, 195, 96, "frameworks", ("TF_CONFIG · MASTER_ADDR", "hostfile · DMLC_* · PADDLE_*", "MS_* · yours")),
    Box(40, 332, 425, 204, "", (), "home"),
    Box(495, 332, 425, 204, "", (), "home"),
    Box(60, 368, 185, 66, "API server", ("in one process; SQLite log", "keeps what was said"), "ours"),
    Box(260, 368, 185, 66, "scheduler · kubelet", ("gangs, CPUs, GPUs,", "volumes, probes, logs"), "ours"),
    Box(515, 368, 185, 66, "kube-apiserver", ("RBAC, admission",)),
    Box(715, 368, 185, 66, "schedulers", ("default · Volcano", "scheduler-plugins")),
    *(Box(60 + 130 * n, 450, 116, 70, f"rank {n}", ("process", "own network"), "pod") for n in range(3)),
    *(Box(515 + 130 * n, 450, 116, 70, f"rank {n}", ("container", "on any node"), "pod") for n in range(3)),
    Box(
        40,
        210,
        300,
        84,
        "One manifest",
        ("PyTorchJob · TFJob · MPIJob · PaddleJob …", "sent by trainmaster, kubectl, an SDK,", "Kueue or pipelines"),
    ),
    Box(395, 222, 525, 60, "The Kubernetes API", ("all that anybody sees or does goes through it",), "home"),
)


def picture() -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Trainmaster: one operator for every training framework, on a laptop and on Kubernetes">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M 0 0 L 8 4 L 0 8 z" fill="#52606d"/></marker>'
        '<marker id="tail" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M 8 0 L 0 4 L 8 8 z" fill="#52606d"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *(part for box in BOXES for part in box.drawn()),
        _text(480, 47, "Trainmaster: one operator, one loop, every framework", "title"),
        _text(252, 355, "On a laptop: nothing but pip", "title"),
        _text(707, 355, "On a cluster: real Kubernetes", "title"),
        _line("line", (340, 252), (391, 252)),
        _line("line", (250, 108), (272, 108)),
        _line("line", (465, 108), (487, 108)),
        _line("line", (802, 156), (802, 166), (370, 166), (370, 159)),
        _line("both", (657, 176), (657, 220)),
        _line("both", (430, 284), (430, 330)),
        _line("both", (707, 284), (707, 330)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(picture())
