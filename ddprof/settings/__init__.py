"""Settings that `ddprof run --apply` changes without editing the script: the catalogue and the requested ones."""
