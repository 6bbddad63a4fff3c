"""What harness.toml says about launching Claude Code."""

from pathlib import Path

from harnesses.launchdata import read_launch

LAUNCH = read_launch(Path(__file__).parent)
RESUMES = ("--resume", "-r", "--continue", "-c", "--from-pr")  # arguments that choose a conversation
