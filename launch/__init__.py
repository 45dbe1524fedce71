"""What starts a run: fields of `t5x_like launch`, a Dockerfile, and local.sh for this machine."""
