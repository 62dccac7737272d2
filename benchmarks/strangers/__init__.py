"""Real training scripts of one page by a generator, each with a twin without its fault, and a judge of what is said."""
