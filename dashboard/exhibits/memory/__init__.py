"""Memory: of a run's ranks, and of a memory snapshot."""
