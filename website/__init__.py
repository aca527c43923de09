"""How the documentation site is made: pages that are written from the source while `make docs` builds it.

Not part of the package that is installed. `mkdocs.yml` names `hooks.py` and `docstrings.py`.
"""
