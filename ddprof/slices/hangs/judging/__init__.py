"""Judgement of a hang or failure: from the evidence on each rank to one sentence and a line per rank."""
