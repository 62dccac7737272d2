"""One run of the command: made, kept together, ended, read."""
