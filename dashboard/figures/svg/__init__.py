"""Charts as inline SVG in the colours of the theme."""
