"""Why a job hangs or has failed: from what is known of each rank to one sentence and a line per rank."""
