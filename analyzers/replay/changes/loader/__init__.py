"""The data loader with other settings: what a batch costs, the queue of its workers, the step they allow."""
