"""Workloads with a fault and with its fix, run in turns on this machine: is what ddprof says of them true?"""
