"""The laboratory: a task and a policy of a million parameters, on which a laptop compares methods over seeds."""
