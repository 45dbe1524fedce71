"""Files in buckets, and their copies on the disks of hosts."""
