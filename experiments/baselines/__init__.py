"""What RidgeRank is compared with: every baseline scores the same candidates of the same queries."""
