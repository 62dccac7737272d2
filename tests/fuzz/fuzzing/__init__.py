"""Damaged inputs through the command line. A case is a seed (a sound input), a mutation (a small function) and a number
(which seeds its choices): its name makes it again. `python -m fuzzing --help` runs cases, `test_cases.py` some."""
