"""Code of the user as findings tell it: by file, line and function."""
