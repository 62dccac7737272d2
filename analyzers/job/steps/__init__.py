"""Steps of a job: which of them are steady, which every rank recorded whole, and from which on one is slower."""
