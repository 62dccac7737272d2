"""Tables of a text log -> what they show and what they cannot. Nothing here knows how the lines were written."""
