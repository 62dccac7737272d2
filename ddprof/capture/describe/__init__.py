"""Descriptions of the job's live objects as plain JSON; neither user code nor the device is called."""
