"""Words on what is said of communication that could go: its cost, its line, and what to write instead."""
