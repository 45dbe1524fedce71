"""Where a run happens: a laptop (local.sh) or a TPU slice (tpu_vm.py)."""
