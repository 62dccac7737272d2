"""The timeline without a browser: lanes of slices, their index, tiles of a view, answers about a slice or a range."""
