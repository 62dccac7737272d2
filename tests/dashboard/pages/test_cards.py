"""What a filter does not choose says so, and unknown is never an amount."""

import numpy as np

from ddprof.dashboard.app import _navigation
from ddprof.dashboard.exhibits.communication import NOT_RECORDED
from ddprof.dashboard.exhibits.communication import exhibits as communication
from ddprof.dashboard.exhibits.ranks import exhibits as ranks
from ddprof.dashboard.pages.cards import exhibit_card
from ddprof.dashboard.pages.catalogue import page_at
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.tables import NULL
from tests.dashboard.changed import with_job


def _words(component: object) -> str:
    return str(component)


def test_each_exhibit_says_which_filters_it_does_not_follow(straggler: OpenRun) -> None:
    view = View(straggler, {"ranks": "0", "steps": "0"}, (straggler,))
    said = {e.id: _words(exhibit_card(e, "/ranks", view)) for e in ranks(view)}
    assert "whatever the filter" not in said["lateness"] + said["step-causes"]
    assert "All steps, whatever the filter." in said["blame"]
    assert "All ranks and steps, whatever the filter." in said["critical"]
    for path in ("/", "/findings", "/what-if"):
        assert "all ranks and steps, whatever the filter." in _words(page_at(path).content(view))
    plain = View(straggler, {}, (straggler,))
    assert "whatever the filter" not in "".join(_words(page_at(p).content(plain)) for p in ("/", "/ranks", "/findings"))


def test_what_was_not_recorded_is_grey_or_said(straggler: OpenRun) -> None:
    links = {link.children: link.className for link in _navigation(View(straggler, {}, (straggler,)), "/")}
    assert "empty" in links["Pipeline"] and "empty" in links["Compare"] and "empty" in links["Live"]
    assert links["Communication"] == "" and links["Overview"] == "current"
    instances = straggler.job.instances
    opened = with_job(straggler, instances=instances.replace(size_bytes=np.full(len(instances), NULL)))
    groups = next(e for e in communication(View(opened, {}, (opened,))) if e.id == "groups")
    assert {row[-1] for row in groups.sheet.rows} == {NOT_RECORDED}
