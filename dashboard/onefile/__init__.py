"""All pages of the dashboard as one self-contained HTML file."""
