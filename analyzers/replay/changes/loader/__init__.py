"""The data loader with other settings: cost of a batch, the workers' queue, and the resulting step."""
