"""How sure a gain is."""
