"""What the text log of a training job says: its tables, and the reading of them."""
