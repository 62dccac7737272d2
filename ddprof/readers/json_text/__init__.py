"""JSON text: events from text of any layout and size, damaged text included, in bounded memory."""
