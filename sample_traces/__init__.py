"""Part of ddprof: imported as `ddprof.sample_traces`, never as `sample_traces`."""

if __name__ != "ddprof.sample_traces":
    raise ImportError("import ddprof.sample_traces, not sample_traces: a second copy would register everything twice")
