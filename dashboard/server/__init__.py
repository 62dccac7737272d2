"""The web server: HTTP, access, scripts, data routes, uploads."""
