"""Two runs side by side: what changed, whether it is more than noise, and the result in words and HTML."""
