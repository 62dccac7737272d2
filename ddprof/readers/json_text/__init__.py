"""JSON text: events out of text of any layout and any size, damaged text included, in bounded memory."""
