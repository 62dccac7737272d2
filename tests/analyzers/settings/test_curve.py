"""What a curve of predictions advises."""

from ddprof.analyzers.settings.curve import Point, SettingCurve


def test_a_curve_keeps_what_is_as_good_as_the_best() -> None:
    points = tuple(Point(v, us) for v, us in ((1, 200.0), (10, 101.0), (25, 100.0), (50, 101.9), (100, 150.0)))
    assert [p.value for p in SettingCurve("k", points).flat] == [10, 25, 50]
    assert SettingCurve("k", points, now=50).advised((25.0,)).value == 50
    assert SettingCurve("k", points, now=1).advised((100.0, 10.0)).value == 10
    assert SettingCurve("k", points).advised(()).value == 25
