"""The shallow pass: states of a query over stored prefixes."""
