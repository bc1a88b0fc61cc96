"""Statistics of runs, on plain numbers."""
