"""Names of the files of a run folder."""

from ddprof.capture.files.layout import parse_stem


def test_names() -> None:
    fields = parse_stem("rank3.node-a.77.1.0.pt.trace.json.gz")
    assert fields == {"rank": "3", "host": "node-a", "pid": "77", "restart": "1", "window": "0"}
    assert parse_stem("rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz") is None
