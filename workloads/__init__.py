"""Part of ddprof: imported as `ddprof.workloads`, never as `workloads`."""

if __name__ != "ddprof.workloads":
    raise ImportError("import ddprof.workloads, not workloads: a second copy would register everything twice")
