"""Parts shared by pages: the exhibit, arithmetic on the job's tables, the step dot plot."""
