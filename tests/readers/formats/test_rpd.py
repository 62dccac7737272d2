"""rocprof databases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from shared_formats import FORMATS, names, traces

from ddprof.model import DEVICE_KINDS, Kind
from ddprof.tables import NULL


def test_rocprof_database_and_json_agree(shared_dir: Path) -> None:
    by_format = {t.format: t for t in traces(shared_dir / FORMATS / "rocm_rpd")}
    database, text = by_format["rpd"], by_format["chrome"]
    for kind in (Kind.KERNEL, Kind.MEMCPY):
        assert len(names(database, kind)) == len(names(text, kind)) > 0
    assert set(names(text, Kind.RUNTIME)) < set(names(database, Kind.RUNTIME))
    assert database.device.kind == text.device.kind == "rocm"
    assert np.abs(np.sort(database.events["ts_ns"]) - np.sort(text.events["ts_ns"])).max() < 1000
    device = np.isin(database.events["kind"], DEVICE_KINDS)
    assert (database.events["correlation"][device] != NULL).all()
    assert database.copies["size_bytes"].max() == 2_000_000_000
