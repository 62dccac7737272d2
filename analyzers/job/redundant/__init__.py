"""Communication in every step without which training would be the same, or nearly so."""
