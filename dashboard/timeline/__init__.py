"""The timeline without a browser: lanes of slices, their index, tiles of a view, details of a slice or a range."""
