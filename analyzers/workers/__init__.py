"""The map: one rank -> its facts, in a pool of processes or on a Dask cluster."""
