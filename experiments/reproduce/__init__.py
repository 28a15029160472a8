"""The paper's experiments: stages that compute, protocols that combine, tables and figures that show."""
