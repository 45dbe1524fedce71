"""What turns states into predictions."""
