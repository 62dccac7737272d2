"""Settings of wrappers that are set once the wrapper is there: its hook, its prefetching, how it is called."""
