"""`ddprof tune`: tries the fixes of a diagnosis on the user's own command, and says which of them to keep."""
