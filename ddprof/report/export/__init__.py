"""A run for other tools: tables (parquet, CSV) and a trace that the Perfetto UI opens."""
