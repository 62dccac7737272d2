"""Protocol of what differs between ranks whose work runs on devices and CPU ranks, behind one protocol chosen once per
job."""
