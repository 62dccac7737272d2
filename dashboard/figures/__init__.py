"""A picture as data (`charts`), and as what plotly.js draws of it, in the dashboard and in the HTML file alike."""
