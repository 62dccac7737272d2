"""A hook of MkDocs: a page of every finding and remark, made of what `ddprof explain` prints.

Where a shipped sample has the finding, the page shows the step and the card as `ddprof report` draws them: made from
the sample when the site is built, kept in no file. They stand in a shadow root, so that the style of the site and that
of the report do not meet.
"""

from __future__ import annotations

import html
import re
from functools import cache

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from ddprof.analyzers.catalogue import page, titles
from ddprof.api import AnalyzedRun, analyze
from ddprof.cli.demo import read_samples, sample_root
from ddprof.findings import Finding
from ddprof.report.html import parts
from ddprof.report.html.style import STYLE

INDEX = "findings/index.md"
_SECTION = re.compile(r"^([A-Z][A-Za-z ]+): (.)", re.MULTILINE)
_CONDITION = re.compile(r":root((?::not\([^)]*\)|\[[^\]]*\])+)")  # the root of a shadow tree is its host
_FRAME = (
    ":host{display:block;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,sans-serif;"
    "border:1px solid var(--line);border-radius:8px;padding-bottom:10px}"
)
_LABELS = {"What it detects", "Why it costs", "How the gain is priced", "How to fix", "Limits", "Sources"}
_INTRODUCTION = """# Findings

What ddprof can say of a run: one page for each finding, and for each remark on the training itself. On the command line
`ddprof explain` lists them and `ddprof explain ID` prints the page of one.

"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation, below their index."""
    for entry in config.nav or []:
        if isinstance(entry, dict) and entry.get("Findings") == [INDEX]:
            entry["Findings"] = [INDEX, *({name: _uri(name)} for name in titles())]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    texts = {INDEX: _index()} | {_uri(name): _page(name, title) for name, title in titles().items()}
    for uri, text in texts.items():
        files.append(File.generated(config, uri, content=text))
    return files


def _uri(name: str) -> str:
    return f"findings/{name}.md"


def _index() -> str:
    rows = [f"| [`{name}`]({name}.md) | {title} |" for name, title in titles().items()]
    return _INTRODUCTION + "\n".join(["| identifier | what it says |", "|---|---|", *rows, ""])


def _page(name: str, title: str) -> str:
    return f"# {name}\n\n**{title}.** {_sections(page(name))}\n\n{_example(name)}"


def _sections(text: str) -> str:
    """The docstring as Markdown: its labels become bold, its words stay."""

    def labelled(label: re.Match[str]) -> str:
        return f"\n**{label[1]}.** {label[2].upper()}" if label[1] in _LABELS else label[0]

    return _SECTION.sub(labelled, html.escape(text, quote=False).replace("*", "\\*"))


def _example(name: str) -> str:
    """The card of the finding in the sample that was made to show it."""
    for sample, truth in read_samples(sample_root()).items():
        if any(finding["id"] == name for finding in truth["findings"]):
            run = _analyzed(sample)
            for number, finding in enumerate(run.findings, 1):
                if finding.id == name:
                    return (
                        f"## An example\n\nFrom a shipped sample: `ddprof demo {sample}`. The sample is made by a "
                        f"simulator, so that its truth is known.\n\n{_card(run, finding, number)}\n"
                    )
    return ""


@cache
def _analyzed(sample: str) -> AnalyzedRun:
    return analyze(sample_root() / sample, cache=False)


def _card(run: AnalyzedRun, finding: Finding, number: int) -> str:
    style = _CONDITION.sub(r":host(\1)", STYLE).replace(":root", ":host") + _FRAME
    drawn = parts.step(run.report) + parts.card(run.report, finding, number)
    # Markdown leaves a block of HTML alone up to the first empty line.
    inside = re.sub(r"\n\s*\n", "\n", f"<style>{style}</style><main>{drawn}</main>")
    words = html.escape(f"The card of {finding.id} in a report: {finding.summary}", quote=True)
    return (
        f'<div role="figure" aria-label="{words}" data-search-exclude>'
        f'<template shadowrootmode="open">{inside}</template></div>'
    )
