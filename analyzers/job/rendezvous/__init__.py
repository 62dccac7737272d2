"""Rendezvous that left no collective in the trace, inferred from ranks that stand still and resume together."""
