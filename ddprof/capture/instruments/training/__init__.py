"""Evidence on silent training mistakes, recorded in the process and judged by comparing ranks."""
