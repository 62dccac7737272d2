"""Evidence that several rules show or ask: the spans, settings and device states behind a finding."""
