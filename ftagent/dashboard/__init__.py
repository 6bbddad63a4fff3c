"""The dashboard: one model of what is seen (`model`), where it comes from (`live`, `mock`, `replay`), and how it is shown."""
