"""How often ddprof is right over labelled runs, whose truth is known."""
