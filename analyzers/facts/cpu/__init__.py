"""Facts of CPU ranks, whose training threads are the device."""
