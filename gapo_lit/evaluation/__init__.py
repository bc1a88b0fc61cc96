"""Evaluation: benchmarks, what a policy did on each problem of them, and what that says."""
