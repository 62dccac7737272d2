"""Model of what is looked at: opened runs, those still being written, and what an address selects of them."""
