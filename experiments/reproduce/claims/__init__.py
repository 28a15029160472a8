"""Every claim of the paper that a run can check, with the threshold that the paper itself prints."""
