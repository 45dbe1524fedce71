"""The common parts of the commands: arguments, processes, how an error ends them."""
