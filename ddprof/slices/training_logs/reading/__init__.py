"""Text logs to tables: cleaned lines, then one file per framework."""
