"""Rendezvous without a collective in the trace, inferred from ranks that stand still and resume together."""
