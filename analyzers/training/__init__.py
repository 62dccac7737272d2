"""Silent mistakes of distributed training, which cost no step time but may spoil the model."""
