"""CenterCLIP in the tools that people already use: editors, agents, the desktop. Thin; some need an optional extra."""
