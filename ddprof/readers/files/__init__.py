"""Files: what lies on disk or elsewhere, however it is packed, and what its name says."""
