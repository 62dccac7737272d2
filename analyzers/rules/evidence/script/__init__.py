"""The user's code in findings: by file, line and function."""
