"""Differences between ranks on devices and CPU ranks, behind one object chosen once per job."""
