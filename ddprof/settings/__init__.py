"""Settings that `ddprof run --apply` can change without an edit of the script: what there is, and what is wanted."""
