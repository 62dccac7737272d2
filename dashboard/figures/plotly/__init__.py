"""Charts as figures of plotly.js: plain dictionaries, for which plotly's Python package is not needed."""
