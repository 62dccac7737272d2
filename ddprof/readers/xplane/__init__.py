"""XPlane profiles: the messages of the format, and what of them is work."""
