"""Report to text, JSON, HTML, Perfetto and parquet."""
