"""What-if: what do I gain? Sliders that replay the recorded run with several changes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dash import dcc, html
from dash.development.base_component import Component
from ddprof.analyzers.replay.price import LOW_CONFIDENCE_ERROR
from ddprof.dashboard.cards import aria, exhibit_card, notice
from ddprof.dashboard.exhibit import Exhibit, sheet
from ddprof.dashboard.figures.bars import waterfall
from ddprof.dashboard.figures.base import palette
from ddprof.dashboard.session import Session
from ddprof.dashboard.view import View

from ddprof.findings import Change
from ddprof.units import format_share, format_us


@dataclass(frozen=True)
class Control:
    """One thing to change. A slider's value is "times faster" (1 = as recorded); a switch is 0 or 1."""

    id: str
    words: str
    assumption: str
    kind: str
    is_switch: bool = False
    most: float = 8.0

    def change(self, value: float) -> Change | None:
        """The change the replay simulates; None where nothing is changed."""
        if self.is_switch:
            return Change(self.kind) if value else None
        if value == 1.0:
            return None
        return Change(self.kind, (), (1 / value if self.kind == "scale_transfer" else value,))


CONTROLS = (
    Control(
        "bandwidth",
        "Network faster",
        "every transfer takes 1/n of its time; waiting for late ranks stays",
        "scale_transfer",
    ),
    Control("compute", "Kernels faster", "every compute kernel takes 1/n of its time", "scale_compute", most=4.0),
    Control(
        "host", "Host faster", "the host issues work n times as fast where it is free to run", "scale_host", most=4.0
    ),
    Control(
        "loader",
        "Batches always ready",
        "every batch lies in the prefetch queue when it is asked for",
        "instant_loader",
        True,
    ),
    Control(
        "balance",
        "No straggler",
        "in every step each rank computes as long as its peers do on average",
        "balance_compute",
        True,
    ),
    Control(
        "sync",
        "No blocking calls",
        ".item() and other blocking calls outside loading and saving return at once",
        "no_sync",
        True,
    ),
    Control(
        "graphs",
        "Launched as one graph",
        "5 % of the host time is left and kernels follow without gaps",
        "graph_launch",
        True,
    ),
    Control("copies", "Copies beside compute", "pageable host-device copies block nobody", "hide_copies", True),
)


def content(view: View) -> list[Component]:
    """The page."""
    head = [html.H1("What if?")]
    if not view.session.has_traces:
        stored = [exhibit_card(e, "/what-if", view) for e in exhibits(view)]
        return [*head, notice("A saved report cannot be replayed: these are the predictions it holds."), *stored]
    outcome = html.Div(id="what-if-result", **aria(live="polite"))
    live = html.Div([_controls(view), outcome], className="columns what-if")
    return [*head, *_warning(view.session), live, *(exhibit_card(e, "/what-if", view) for e in exhibits(view))]


def exhibits(view: View) -> list[Exhibit]:
    """The report's own predictions."""
    report = view.session.report
    rows = [(w.change, w.predicted_step_us / 1e3, w.low_us / 1e3, w.high_us / 1e3) for w in report.what_if]
    reading = (
        "Each fix alone, by replaying the run's own dependencies; where the last line says so, all of them "
        "together. Gains overlap and are never added."
    )
    if not rows:
        reading = "The report predicts no change that helps."
    columns = ("change", "step after (ms)", "low (ms)", "high (ms)")
    return [Exhibit("what-if", "What do the findings' fixes win?", reading, sheet(columns, rows))]


def _warning(session: Session) -> list[Component]:
    error = session.pricer.error
    if error is None:
        return [notice("This run could not be replayed: predictions are not possible.", "error")]
    if error > LOW_CONFIDENCE_ERROR:
        return [
            notice(
                f"Replaying the unmodified run misses the measured step by {error:.1%}: predictions are uncertain.",
                "error",
            )
        ]
    return []


def _controls(view: View) -> Component:
    """Values come from the address, so that a link shows the same scenario."""
    set_values = settings(view.query)
    items = []
    for control in CONTROLS:
        value = set_values[control.id]
        if control.is_switch:
            tick = dcc.Checklist(
                options=[{"label": " " + control.words, "value": 1}],
                value=[1] if value else [],
                id={"what-if": control.id},
            )
            items.append(html.Div([tick, html.P(control.assumption, className="quiet")], className="control"))
        else:
            marks = {1: "1×", control.most: f"{control.most:g}×"}
            slider = dcc.Slider(
                1,
                control.most,
                0.25,
                value=value,
                marks=marks,
                id={"what-if": control.id},
                updatemode="drag",
                tooltip={"placement": "bottom"},
            )
            items.append(
                html.Div(
                    [html.Label(control.words), slider, html.P(control.assumption, className="quiet")],
                    className="control",
                )
            )
    return html.Div(items, className="controls")


def settings(query: Mapping[str, str]) -> dict[str, float]:
    """Values of all controls from an address; as recorded where it says nothing usable."""
    values = {}
    for control in CONTROLS:
        neutral = 0.0 if control.is_switch else 1.0
        try:
            value = float(query.get(control.id, neutral))
        except ValueError:
            value = neutral
        high = 1.0 if control.is_switch else control.most
        values[control.id] = min(max(value, neutral), high) if value == value else neutral
    return values


def predict(session: Session, values: Mapping[str, float]) -> list[tuple[str, float]]:
    """The step (us) as recorded and after each change in turn, all earlier ones kept: [(words, step_us)]."""
    prices = session.pricer
    levels = [("as recorded", prices.step_us(()))]
    applied: tuple[Change, ...] = ()
    for control in CONTROLS:
        change = control.change(values.get(control.id, 0.0 if control.is_switch else 1.0))
        if change is not None:
            applied = (*applied, change)
            words = control.words if control.is_switch else f"{control.words} {values[control.id]:g}×"
            levels.append((words, prices.step_us(applied)))
    return levels


def result(view: View, levels: Sequence[tuple[str, float]]) -> list[Component]:
    """The prediction as a sentence and a waterfall."""
    before, after = levels[0][1], levels[-1][1]
    if len(levels) == 1:
        words = f"The step takes {format_us(before)} as recorded. Move a slider: the run is replayed with the change."
        return [html.H2(words, className="prediction")]
    gain = before - after
    ratio = f", {before / after:.2f}× the speed" if after > 0 else ""
    share = format_share(gain / before if before else 0.0)
    reading = f"{format_us(before)} → {format_us(after)} per step: {format_us(gain)} ({share}) less{ratio}."
    rows = [(words, value / 1e3) for words, value in levels]
    figure = waterfall([w for w, _ in levels], [v / 1e3 for _, v in levels], palette(view.dark), "ms per step")
    graph = dcc.Graph(
        figure=figure, config={"displayModeBar": False}, id="what-if-figure", style={"height": figure.layout.height}
    )
    exhibit = sheet(("change", "step (ms)"), rows)
    from_table = html.Details([html.Summary("Numbers"), html.Pre(exhibit.csv())])
    return [html.H2(reading, className="prediction"), graph, from_table]
