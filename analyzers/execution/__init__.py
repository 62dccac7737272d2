"""Differences between ranks on devices and CPU ranks, behind one protocol chosen once per job."""
