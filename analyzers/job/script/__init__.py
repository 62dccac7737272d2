"""Lines of the script that hold a rank's host, and which of them hold a late rank alone."""
