"""The `t5x_like` command, with one file for each subcommand."""
