"""The cache of facts: one file per rank in a folder of bounded size."""
