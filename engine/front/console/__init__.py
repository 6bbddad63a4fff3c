"""The web console: who may look, and the page itself. What it shows are the answers that every dashboard asks for."""
