"""What a rank's memory is spent on: activations that are kept, or computed again."""
