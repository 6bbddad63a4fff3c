"""plan (pure) → preview → apply → run."""
