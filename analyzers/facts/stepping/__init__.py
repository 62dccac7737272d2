"""Places where the steps of a rank begin and end: marks, repetition, the time of the device, and what occurs once."""
