"""When the host of a rank stops: inside calls that usually return at once, and between calls."""
