"""One file per check; the folder is the catalogue."""
