"""What runs inside the training process, and in `launcher/` what runs in the process that starts it."""
