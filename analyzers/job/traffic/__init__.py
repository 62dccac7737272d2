"""Traffic: what is communicated: process groups, message costs, links, and totals per operation."""
