"""Memory that is allocated and freed: the words that readers, analyzers and reports share."""
