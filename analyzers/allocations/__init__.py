"""Memory snapshots: what a device held at its peak, from the allocator's own events."""
