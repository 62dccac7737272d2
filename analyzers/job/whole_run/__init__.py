"""Data that capture records outside the trace windows: step timers, pauses, samples, the machine."""
