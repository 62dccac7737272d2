"""Script lines that occupy a rank's host, and those that a late rank alone runs."""
