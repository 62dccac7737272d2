"""`ddprof mcp`: verdicts, findings and predictions for assistants, by the Model Context Protocol."""
