"""Settings that a run applies as the script makes its objects, imported only where `ddprof run --apply` or `--set` is
used."""
