"""Server: how the pages reach a browser: HTTP, who may read, scripts, data routes, uploads."""
