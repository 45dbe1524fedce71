"""One engine a file: where a run is started, how it starts again, how it is watched and ended."""
