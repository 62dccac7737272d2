"""Proof on real jobs: workloads with a fault, without it, and with its fix, against what ddprof says of them."""
