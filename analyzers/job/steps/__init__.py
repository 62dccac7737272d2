"""Steps of a job: the steady ones, those that every rank recorded whole, and the onset of slow ones."""
