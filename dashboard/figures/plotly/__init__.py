"""Charts for the dashboard: figures of plotly."""
