"""Charts as figures of plotly.js: plain dictionaries, without plotly's Python package."""
