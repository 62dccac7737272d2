"""Draw the sweeps of `results/sweeps.json` as docs/figures/sweep-*.svg: measured steps, planner's curve, its advice.

python benchmarks/plot_sweeps.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 340, 64, 20, 46, 52
MEASURED, PREDICTED, ADVISED = "#0b6e99", "#b5541c", "#3a7d44"


def scale(values: Sequence[float], low: float, high: float) -> list[float]:
    """Positions of values at even distances between two pixels: settings are compared by rank, not by size."""
    step = (high - low) / max(1, len(values) - 1)
    return [low + i * step for i in range(len(values))]


def polyline(points: Sequence[tuple[float, float]], colour: str, dashed: bool) -> str:
    """A line through points."""
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'


def drawing(title: str, sweep: dict[str, Any]) -> str:
    """The SVG document of one sweep."""
    values = sorted(float(v) for v in sweep["measured_ms"])
    place = dict(zip(values, scale(values, LEFT + 24, WIDTH - RIGHT - 24), strict=True))
    predicted = {float(v): ms for v, ms in sweep["predicted_ms"].items() if float(v) in place}
    most = 1.08 * max([*predicted.values(), *(ms for found in sweep["turns_ms"].values() for ms in found)])

    def y(ms: float) -> float:
        return HEIGHT - BOTTOM - ms / most * (HEIGHT - BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" '
        f'font-size="13"><title>{title}</title><rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="15" font-weight="bold">{title}</text>',
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = y(tick * most)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick * most:.0f}</text>')
    x = place[float(sweep["advised_as_run"])]
    parts.append(f'<rect x="{x - 16:.1f}" y="{TOP}" width="32" height="{HEIGHT - BOTTOM - TOP}" fill="{ADVISED}" '
                 'fill-opacity="0.15"/>')  # fmt: skip
    parts.append(polyline([(place[v], y(ms)) for v, ms in sorted(predicted.items())], PREDICTED, True))
    parts.append(polyline([(place[v], y(sweep["measured_ms"][f"{v:g}"])) for v in values], MEASURED, False))
    for v in values:
        parts += [f'<circle cx="{place[v]:.1f}" cy="{y(ms):.1f}" r="4" fill="{MEASURED}"/>'
                  for ms in sweep["turns_ms"][f"{v:g}"]]  # fmt: skip
        parts.append(f'<text x="{place[v]:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{v:g}</text>')
    parts += [
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{sweep["knob"]}</text>',
        f'<text x="{LEFT}" y="38" fill="{MEASURED}">measured (ms per step)</text>',
        f'<text x="{LEFT + 180}" y="38" fill="{PREDICTED}">predicted, as traced</text>',
        f'<text x="{LEFT + 340}" y="38" fill="{ADVISED}">advised</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Write one file per sweep."""
    folder = ROOT / "docs" / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    found = json.loads((ROOT / "benchmarks" / "results" / "sweeps.json").read_text(encoding="utf-8"))
    titles = {"buckets": "MNIST, 2 CPU ranks: bucket_cap_mb", "loader": "MNIST, 2 CPU ranks: num_workers"}
    for name, sweep in found.items():
        (folder / f"sweep-{name}.svg").write_text(drawing(titles[name], sweep), encoding="utf-8")


if __name__ == "__main__":
    main()
