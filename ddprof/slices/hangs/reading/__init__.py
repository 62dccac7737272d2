"""Record of what a rank left that hung, failed or was ended: dumps of its collectives, its stacks, its sidecar."""
