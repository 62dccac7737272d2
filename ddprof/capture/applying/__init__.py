"""Settings that a run applies while the script creates its objects; imported only for `ddprof run --apply` or
`--set`.
"""
