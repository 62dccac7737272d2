"""Record of what capture recorded beside the trace windows: step timers, pauses, samples, the machine."""
