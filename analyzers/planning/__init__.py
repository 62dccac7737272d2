"""Planning: from what was measured to the step other settings would give."""
