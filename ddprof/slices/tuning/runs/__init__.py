"""One run of the command: start, supervision, end, measurements."""
