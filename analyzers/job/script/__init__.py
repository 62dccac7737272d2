"""Which lines of the script hold a rank's host, and which of them hold a late rank alone."""
