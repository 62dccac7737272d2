"""Evidence shared by rules: spans, settings and device states behind a finding."""
