"""Communication that Python calls: functions of torch.distributed, and hooks on gradients."""
