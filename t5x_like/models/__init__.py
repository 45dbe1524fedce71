"""Model families, one file each: a frozen `Config`, a module and its loss."""
