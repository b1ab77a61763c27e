"""Foreign model formats, one file each: they all make the graphs of ir.py."""
