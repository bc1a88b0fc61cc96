"""Verifiers: what a completion earns. Nothing is imported here, so that a grading process loads its grader alone."""
