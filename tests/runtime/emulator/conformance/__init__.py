"""The families of conformance files that are systematic, a module each. See make_conformance.py."""
