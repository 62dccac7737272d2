"""`ddprof doctor`: what of ddprof works here, what is missing, and how to get it."""
