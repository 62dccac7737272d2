"""A picture as data (`charts`), drawn by plotly for the dashboard and as SVG for the HTML file."""
