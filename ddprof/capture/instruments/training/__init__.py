"""Record of what costs no time and may spoil a training: seen in the process, judged when the ranks are compared."""
