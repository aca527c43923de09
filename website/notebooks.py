"""A notebook as a page: text cells as they are, code cells as blocks of code. Outputs are not shown."""

import json


def notebook_page(notebook: str) -> str:
    """Markdown of a notebook.

    Args:
        notebook (`str`): The text of the `.ipynb` file.
    """
    parts = []
    for cell in json.loads(notebook)["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def code_cells(notebook: str) -> list[str]:
    """The code of a notebook, cell by cell, in order."""
    return ["".join(cell["source"]) for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
