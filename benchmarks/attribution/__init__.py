"""Who is late and by what, from one model of all ranks: judged here beside the rules before it may take their place."""
