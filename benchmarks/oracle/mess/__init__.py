"""Obstacles of real recordings, one file each, listed in `catalogue.py`."""
