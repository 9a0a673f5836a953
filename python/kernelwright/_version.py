"""The version of runtime/c/c_api.h, and so of this package.

scripts/generate_structs.py writes this file. Do not edit it: change the header and run the script.
"""
MAJOR, MINOR, PATCH = 0, 1, 0
__version__ = "0.1.0"
