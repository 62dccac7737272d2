"""Untrusted input at its entry (files, text, other packages), and secrets that must not leave."""
