"""Settings applied while the script creates its objects; imported only for `ddprof run --apply` or `--set`."""
