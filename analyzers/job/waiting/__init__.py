"""Who waits for whom: wait told from transfer, lateness, and the blame for each wait."""
