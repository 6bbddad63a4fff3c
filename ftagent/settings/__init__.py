"""Settings: the options, how their values are spelled, where they come from, and which projects may set what."""
