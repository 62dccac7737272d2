"""Charts as data (`charts`), and as plotly.js figures of them, for the dashboard and the HTML file alike."""
