"""ddprof measured: reports against labelled runs, and on real jobs with a fault, without it, and with its fix."""
