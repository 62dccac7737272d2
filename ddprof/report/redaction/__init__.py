"""Reports and pages without names: what is public stays, everything else becomes a keyed hash."""
