"""The report as a JSON document, written and read."""
