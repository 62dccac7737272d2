"""Who waits for whom: wait and transfer apart, lateness, and the blame for each wait."""
