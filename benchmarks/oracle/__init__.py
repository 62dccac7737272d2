"""Generator of multi-rank GPU training traces whose truth is known, because a simulator made them.

It is independent of the analyzers on purpose: nothing here imports ddprof, so a mistake cannot cancel itself out.
Entry points: `kinds.scenario`, `simulate.simulate`, `write.write`.
"""
