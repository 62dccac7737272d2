"""Files on disk or in a store, however they are packed, and the meaning of their names."""
