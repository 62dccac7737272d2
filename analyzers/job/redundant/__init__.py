"""Communication that every step repeats although the training would be the same, or nearly, without it."""
