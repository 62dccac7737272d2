"""RankFacts of all ranks to JobFacts: clocks, matching, blame, ledger."""
