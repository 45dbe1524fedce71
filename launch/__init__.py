"""Files to start a run: fields of `t5x_like launch`, a Dockerfile, local.sh for this machine."""
