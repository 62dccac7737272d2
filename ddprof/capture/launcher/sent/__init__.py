"""What of a run is sent elsewhere while the job goes on: the run folder to a store, numbers to experiment trackers."""
