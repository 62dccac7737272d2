"""Part of ddprof: imported as `ddprof.dashboard`, never as `dashboard`."""

if __name__ != "ddprof.dashboard":
    raise ImportError("import ddprof.dashboard, not dashboard: a second copy would register everything twice")
