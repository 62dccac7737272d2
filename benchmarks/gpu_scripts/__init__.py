"""Training scripts of one page for one GPU, each with a fault that the environment switches, a recorder and a judge."""
