"""Scripts that start a run: on a laptop (local.sh) or on a TPU slice (tpu_vm.py)."""
