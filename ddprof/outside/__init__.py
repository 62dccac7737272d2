"""What comes from outside, at the first touch: files that may be anything, text that no terminal may take as it is."""
