"""Parts that the exhibits of several pages share: the exhibit itself, arithmetic on the job's tables, the step dot
plot."""
