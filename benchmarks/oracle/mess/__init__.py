"""What makes real recordings hard to read: each mess in a file of its own, all of them in `catalogue.py`."""
