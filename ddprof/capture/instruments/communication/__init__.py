"""Communication that Python calls or is called for: functions of torch.distributed, and hooks of its gradients."""
