"""When trace windows open and close."""

from ddprof.capture.files.control import LESS, Request
from ddprof.capture.window.plan import Less, WindowPlan


def test_windows_open_as_planned_or_asked_for_and_end_where_the_script_says() -> None:
    def windows(plan: WindowPlan, steps: int) -> list[tuple[int, int]]:
        found, opened = [], None
        for index in range(1, steps):
            if opened is not None and plan.closes_at(index):
                found.append((opened, index - 1))
                opened = None
            if opened is None and plan.opens_at(index):
                opened = index
        return found

    assert windows(WindowPlan(5, 5), 100) == [(5, 9)]
    assert windows(WindowPlan(5, 5, 20), 60) == [(5, 9), (25, 29), (45, 49)]
    assert windows(WindowPlan(2, 3, 1), 16)[:2] == [(2, 4), (6, 8)]  # at least one bare step between two windows
    assert windows(WindowPlan(5, 5, automatic=False), 100) == []
    plan = WindowPlan(5, 3)
    assert plan.opens_at(5) == "planned" and plan.last_step == 7 and not plan.closes_at(7)
    asked = WindowPlan(5, 5, automatic=False)
    asked.request(50, 2, "asked for")
    assert windows(asked, 100) == [(50, 51)]
    plan = WindowPlan(3, 2, automatic=False)
    assert plan.idle
    plan.request(10, 1, "asked for")
    assert not plan.idle and plan.opens_at(12) == "asked for" and plan.idle and not WindowPlan(3, 2).idle
    plan = WindowPlan(3, 5, automatic=False)
    plan.request(10, 5, "asked for")
    assert plan.opens_at(10) and plan.last_step == 14 and not plan.end_with(11)
    assert (plan.last_step, plan.closes_at(11), plan.closes_at(12)) == (11, False, True)
    plan.end_with(20)
    assert plan.last_step == 11  # never longer
    plan.request(30, 2, "asked for")
    assert plan.end_with(29) and plan.idle and plan.opens_at(30) is None


def test_windows_leave_out_what_is_asked_for_from_the_same_step_on_every_rank() -> None:
    plan = WindowPlan(5, 5, 20)
    for first_step, count in ((20, 1), (60, 2)):
        plan.obey(Request(LESS, first_step, count, "too much"))
    assert [plan.less_at(step) for step in (59, 60)] == [Less(20, 1, "too much"), Less(60, 2, "too much")]
