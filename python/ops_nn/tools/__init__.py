"""The command line `ops-nn`: one file for each verb.

A verb's module has `HELP`, `arguments(parser)` and `run(args)`, which returns the exit code. What only one verb needs is
imported when that verb runs.
"""
