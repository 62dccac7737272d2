"""Part of ddprof: imported as `ddprof.analyzers`, never as `analyzers`."""

if __name__ != "ddprof.analyzers":
    raise ImportError("import ddprof.analyzers, not analyzers: a second copy would register everything twice")
