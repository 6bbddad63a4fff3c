"""The command line: which commands there are, how they are parsed, and what is made from that: help, completion, manual."""
