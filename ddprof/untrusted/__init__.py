"""Untrusted input at its first touch (files, text, other packages), and secrets that must not leave."""
