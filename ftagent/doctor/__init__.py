"""What may stand in the way of a launch: each room finds facts and changes nothing; `fixing` runs the one command that helps."""
