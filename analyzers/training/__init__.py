"""Silent mistakes of distributed training: they cost no step time, and may spoil what is trained."""
