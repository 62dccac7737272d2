"""What tuning says: on its progress, its plan and its answer."""
