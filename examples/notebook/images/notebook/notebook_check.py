"""Run a notebook with the image's kernel, and print the device that computed."""

import nbformat
from nbclient import NotebookClient

SECONDS = 120
CELL = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
total = torch.ones(1000, device=device).sum().item()
print("computed on", device) if total == 1000 else print("wrong:", total)
"""


def main() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    print(output["text"].strip())


if __name__ == "__main__":
    main()
