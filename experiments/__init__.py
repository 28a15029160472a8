"""What reproduces the paper and made the shipped models: in the repository, tested, not in the wheel."""
