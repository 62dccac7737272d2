"""JobFacts to the dependency graph that is replayed."""
