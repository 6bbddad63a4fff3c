"""How a conversation changes between two requests: where its prompt may diverge, as positions in the rendered tokens."""
