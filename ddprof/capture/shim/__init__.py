"""The folder that `ddprof run` puts on PYTHONPATH: it holds `sitecustomize.py`, which Python imports at start-up."""
