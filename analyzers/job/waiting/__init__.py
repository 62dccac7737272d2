"""Waits between ranks: wait and transfer, lateness, and the blame for each wait."""
