"""The report as HTML: parts, page, stylesheet, and markup that is escaped by construction."""
