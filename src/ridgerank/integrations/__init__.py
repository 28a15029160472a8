"""RidgeRank behind the interfaces of other libraries, one file each; only that file imports the library."""
