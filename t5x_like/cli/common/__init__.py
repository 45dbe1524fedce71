"""What the commands share: arguments, processes, how an error ends them."""
