"""Settings of a recorded job: their present values, the values to try, and the step that each would give."""
