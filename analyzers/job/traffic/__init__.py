"""Traffic: process groups, message costs, links, and totals per operation."""
