"""The front before servers somewhere else: they compute tokens, everything that agents see stays ours."""
