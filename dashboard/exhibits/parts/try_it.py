"""Commands to copy that try a fix on the job itself, made from the command that started the run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence

from ddprof.analyzers.settings.knobs import Setting
from ddprof.analyzers.settings.offers import applied_as, text_of
from ddprof.dashboard.exhibits.parts.exhibit import Listing
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.findings import Finding
from ddprof.report.fixes import FILE_NAME, applicable
from ddprof.settings.wanted import WantedFix, changes_numbers, parse_set, shown
from ddprof.untrusted.plain_text import clean


def of_finding(opened: OpenRun, finding: Finding) -> tuple[Listing, ...]:
    """Commands for the fixes of one finding: a measured trial, and a run with them applied."""
    fixes = [fix for fix, of, _ in applicable(opened.report) if of is finding]
    if not fixes:
        return ()
    names = dict.fromkeys(next(iter(fix.values)) for fix in fixes)
    stated = [f"{name}={shown(value)}{f'@{fix.at}' if fix.at else ''}" for fix in fixes for name, value in _set(fix)]
    tune = ["ddprof", "tune", *_each("--only", names), *_allowed(fixes)]
    run = ["ddprof", "run", *_each("--set", stated), *_allowed(fixes)]
    return _listings(
        opened,
        ("Try it: run beside the job as it is, in pairs of short runs", tune),
        ("Or one run with it applied, the script unedited", run),
    )


def of_run(opened: OpenRun) -> tuple[Listing, ...]:
    """Commands for all fixes of a run together; none where no fix can be applied."""
    fixes = [fix for fix, _, _ in applicable(opened.report)]
    if not fixes:
        return ()
    stated = os.path.join(opened.run_folder, FILE_NAME)
    offers = [("Try them: each alone, then together, beside the job as it is", ["ddprof", "tune", *_allowed(fixes)])]
    if opened.run_folder and os.path.isfile(stated):
        run = ["ddprof", "run", "--apply", _seen_from_there(opened, stated), *_allowed(fixes)]
        offers.append(("Or one run with all of them applied, the script unedited", run))
    return _listings(opened, *offers)


def of_settings(opened: OpenRun, settings: Sequence[Setting]) -> tuple[Listing, ...]:
    """Commands that replay the run with these settings, and that run the job with those `ddprof run` can apply."""
    listings: tuple[Listing, ...] = ()
    if opened.argument:
        command = ["ddprof", "whatif", opened.argument, *_each("--set", [text_of(setting) for setting in settings])]
        if clean(line := shlex.join(command)) == line:
            listings = (Listing("The same replay in a terminal:", line),)
    fixes = [fix for setting in settings for fix in _as_fix(setting)]
    if not fixes:
        return listings
    stated = [f"{name}={shown(value)}" for fix in fixes for name, value in _set(fix)]
    words = f"One run of the job with {', '.join(stated)}, the script unedited"
    return (*listings, *_listings(opened, (words, ["ddprof", "run", *_each("--set", stated), *_allowed(fixes)])))


def _as_fix(setting: Setting) -> Iterator[WantedFix]:
    """A setting as `ddprof run --set` takes it; nothing for settings of single ranks, or that are not the job's."""
    try:
        if not setting.ranks:
            yield parse_set(applied_as(setting))
    except ValueError:
        return


def of_job(opened: OpenRun) -> tuple[Listing, ...]:
    """All commands to try on the job."""
    return _listings(opened, ("Try the fixes of a diagnosis on the job itself", ["ddprof", "tune"]))


def with_fixes(opened: OpenRun, fixes_file: str, allows_numerics: bool) -> tuple[Listing, ...]:
    """The command that runs the job with a FIXES.toml."""
    if not os.path.isfile(fixes_file):
        return ()
    allowed = ["--allow-numerics"] * allows_numerics
    words = "Run the job with these settings, the script unedited"
    return _listings(opened, (words, ["ddprof", "run", "--apply", _seen_from_there(opened, fixes_file), *allowed]))


def _seen_from_there(opened: OpenRun, path: str) -> str:
    """A path relative to the folder that the command runs in, where it lies below."""
    start = opened.launch.cwd if opened.launch is not None else ""
    return os.path.relpath(path, start) if start and path.startswith(os.path.join(start, "")) else path


def _listings(opened: OpenRun, *offers: tuple[str, Sequence[str]]) -> tuple[Listing, ...]:
    """The commands; none where the job's command is unknown or cannot be copied from a page."""
    launch = opened.launch
    if launch is None:
        return ()
    lines = [f"{shlex.join(start)} -- {launch.command}" for _, start in offers]
    if any(clean(line) != line for line in (*lines, launch.cwd)):
        return ()
    place = f", from {launch.cwd}" if launch.cwd else ""
    return tuple(Listing(f"{words}{place}:", line) for (words, _), line in zip(offers, lines, strict=True))


def _set(fix: WantedFix) -> list[tuple[str, object]]:
    return list(fix.values.items())


def _each(option: str, values: Sequence[str] | dict[str, None]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _allowed(fixes: Sequence[WantedFix]) -> list[str]:
    return ["--allow-numerics"] if any(map(changes_numbers, fixes)) else []
