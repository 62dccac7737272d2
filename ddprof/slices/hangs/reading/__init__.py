"""Evidence left by a rank that hung, failed or was ended: dumps of collectives, stacks, sidecar."""
