"""Pages of several runs side by side."""
