"""The verdict on a job that hangs or has failed, as text and as JSON."""
