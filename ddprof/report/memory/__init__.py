"""What is said of memory snapshots, as text and as JSON."""
