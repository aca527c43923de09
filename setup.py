"""Puts the folder recipes/ into the built package, as trl_populora/recipes. Everything else is in pyproject.toml."""

from setuptools import find_packages, setup


setup(
    packages=[*find_packages(include=["trl_populora", "trl_populora.*"]), "trl_populora.recipes"],
    package_dir={"trl_populora.recipes": "recipes"},
)
