"""What RidgeRank is compared with: every arm scores the same candidates of the same queries."""
