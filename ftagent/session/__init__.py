"""Sessions: their records, what they are doing, which one goes on and where."""
