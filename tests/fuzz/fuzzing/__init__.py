"""A mutation harness: damaged inputs through the command line, and what must hold of every answer.

A case is a seed (an input that is sound), a mutation (a small pure function) and a number (which seeds the mutation's
choices): its name says how to make it again. `python -m fuzzing --help` runs cases; `test_cases.py` runs some in each
test run.
"""
