"""From an empty machine to a running agent: measure, model, agent, dry run, launch, each by the command of that name."""
