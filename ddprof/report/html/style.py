"""The stylesheet of the HTML report: light, dark and print; no font or picture from outside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ddprof._version import __version__
from ddprof.causes import CAUSES
from ddprof.report.html.markup import Markup, tag

# Colours by the theme's names: those of the causes and of the page. `heat-...`: cells of a heatmap on which the theme's
# text has a contrast of 4.5.
LIGHT: Mapping[str, str] = {
    "ground": "#fff", "panel": "#f6f8fa", "line": "#d0d7de", "text": "#1f2328", "quiet": "#57606a", "accent": "#0a58ca",
    "critical": "#b42318", "warning": "#8a5a00", "info": "#0a58ca", "on-bar": "#fff", "good": "#00805f",
    "heat-more": "#d27b74", "heat-less": "#9aa0a6",
    **{cause.color_name: cause.light for cause in CAUSES.values()},
}  # fmt: skip
DARK: Mapping[str, str] = {
    "ground": "#0d1117", "panel": "#161b22", "line": "#3d444d", "text": "#e6edf3", "quiet": "#9da7b3",
    "accent": "#6cb0ff", "critical": "#ff8f85", "warning": "#e8b649", "info": "#6cb0ff", "on-bar": "#0d1117",
    "good": "#3fc79a", "heat-more": "#86504e", "heat-less": "#555c65",
    **{cause.color_name: cause.dark for cause in CAUSES.values()},
}  # fmt: skip


def _variables(theme: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in theme.items())


STYLE = f"""
:root{{color-scheme:light dark;{_variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{_variables(DARK)}}}}}
:root[data-theme=dark]{{color-scheme:dark;{_variables(DARK)}}}
:root[data-theme=light]{{color-scheme:light}}
@media print{{:root,:root[data-theme=dark]{{color-scheme:light;{_variables(LIGHT)}}}
 .no-print{{display:none!important}}
 .swatch,.part,.stepbar{{print-color-adjust:exact}}
 details>*{{display:block}} body{{font-size:11px}} section{{break-inside:avoid}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;
 font-variant-numeric:tabular-nums}}
main,header{{max-width:1180px;margin:0 auto;padding:0 20px}}
header{{display:flex;gap:12px;justify-content:space-between;align-items:center;padding-top:14px;color:var(--quiet)}}
h1{{font-size:26px;line-height:1.25;margin:14px 0 6px;overflow-wrap:anywhere}} h2{{font-size:18px;margin:28px 0 6px}}
h3{{font-size:16px;margin:0 0 6px;overflow-wrap:anywhere}}
.quiet{{color:var(--quiet)}}
button{{font:inherit;color:inherit;background:var(--panel);border:1px solid var(--line);border-radius:6px;
 padding:4px 10px;cursor:pointer}} :focus-visible{{outline:3px solid var(--accent);outline-offset:2px}}
section>p:first-of-type{{margin-top:0}}
.card{{border:1px solid var(--line);border-left-width:6px;border-radius:8px;background:var(--panel);padding:12px 16px;
 margin:10px 0}} .card.critical{{border-left-color:var(--critical)}} .card.warning{{border-left-color:var(--warning)}}
.card.info{{border-left-color:var(--info)}} .severity.critical{{color:var(--critical)}}
.severity.warning{{color:var(--warning)}} .severity.info{{color:var(--info)}} .severity{{font-weight:700}}
dl{{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:0}} dt{{color:var(--quiet)}}
dd{{margin:0;overflow-wrap:anywhere}} pre{{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--ground);
 border:1px solid var(--line);border-radius:6px;padding:8px 10px;margin:4px 0}}
code,pre{{font-family:ui-monospace,SFMono-Regular,Consolas,monospace;font-size:13px}}
.legend{{display:flex;flex-wrap:wrap;gap:4px 16px;padding:0;margin:6px 0;list-style:none}}
.swatch{{display:inline-block;width:18px;height:14px;margin-right:6px;vertical-align:-2px;border-radius:3px;
 text-align:center;font:700 10px/14px ui-monospace,monospace;color:var(--on-bar)}}
.scroll{{overflow-x:auto}} table{{border-collapse:collapse;font-size:14px}}
th,td{{padding:3px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}}
th:first-child,td:first-child,td.text,th.text{{text-align:left;white-space:normal}} td.short{{white-space:nowrap}}
svg{{display:block;width:100%;height:auto}} svg text{{fill:var(--text);font:12px system-ui,sans-serif}}
svg .on-bar{{fill:var(--on-bar);font-weight:700}} svg.step{{min-height:26px}}
@media (max-width:600px){{svg.step .on-bar{{display:none}}}} summary{{cursor:pointer}}
footer{{max-width:1180px;margin:30px auto;padding:0 20px;color:var(--quiet);font-size:13px}}
@media (prefers-reduced-motion:no-preference){{.card{{transition:border-color .1s}}}}
"""

SCRIPT = """
document.getElementById('theme').addEventListener('click',function(){
 var root=document.documentElement,dark=matchMedia('(prefers-color-scheme: dark)').matches;
 var now=root.dataset.theme||(dark?'dark':'light');root.dataset.theme=now==='dark'?'light':'dark';});
document.getElementById('save').addEventListener('click',function(){
 var text=document.getElementById('report').textContent,link=document.createElement('a');
 link.href=URL.createObjectURL(new Blob([text],{type:'application/json'}));link.download='ddprof-report.json';
 link.click();
 setTimeout(function(){URL.revokeObjectURL(link.href)},1000);});
"""


def colour(cause: str) -> str:
    """The CSS value of a cause's colour in the current theme."""
    return f"var(--{CAUSES[cause].color_name})"


# The frame of every HTML file of ddprof: self-contained, no requests, with light, dark and print styles.

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def page(
    title: str,
    subtitle: str,
    sections: Sequence[Markup],
    data: Markup,
    style: str = "",
    script: str = "",
    navigation: Markup | None = None,
) -> str:
    """A complete document. `data` comes from `embedded`; `style` and `script` are added to the common ones.

    A content security policy forbids every load.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(STYLE + style)),
    )
    theme, save = (tag("button", t, id=i, type="button") for t, i in (("Light / dark", "theme"), ("Save JSON", "save")))
    buttons = tag("span", theme, " ", save, class_="no-print")
    footer = tag("footer", f"ddprof {__version__}. This file makes no request and holds all its data.")
    header = tag("header", tag("span", subtitle), buttons)
    body = tag("body", header, navigation, tag("main", *sections), footer, data, tag("script", Markup(SCRIPT + script)))
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def embedded(document: Mapping[str, Any]) -> Markup:
    """The JSON document that "Save JSON" saves; `<` is escaped, so that no name can end the script element."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="report">{text}</script>')
