"""What of a recording may be compared and averaged: steady steps, what all ranks recorded, matches that can be."""
