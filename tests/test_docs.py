"""Pages that show code show the code that is there."""
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "adding-an-architecture.md"
HUNK = re.compile(r"^\+\+\+ b/(?P<path>\S+)\n(?P<hunks>(?:@@.*\n(?:[+ ].*\n|\+\n)+)+)", re.M)


def hunks():
    """(path, lines after the change) of every hunk of the page."""
    diff = re.search(r"^```diff\n(.*?)^```$", PAGE.read_text(), re.S | re.M)[1]
    for file in HUNK.finditer(diff):
        for hunk in re.split(r"^@@.*\n", file["hunks"], flags=re.M)[1:]:
            yield file["path"], "".join(line[1:] + "\n" for line in hunk.splitlines())


@pytest.mark.parametrize(("path", "text"), list(hunks()), ids=lambda value: value.splitlines()[0][:40])
def test_the_diff_of_an_architecture_is_in_the_tree(path, text):
    assert text.rstrip("\n") in (ROOT / path).read_text()


def test_the_whole_of_it_is_shown():
    shown = list(hunks())
    code = "".join(text for path, text in shown if path.endswith("phi.pyx"))
    lines = (ROOT / "pantheon/_core/arch/llama/phi.pyx").read_text().splitlines()
    imports = {"from", "import", ")"}
    missing = [line for line in lines if line and line not in code.splitlines() and line.split()[0] not in imports
               and not re.fullmatch(r"    \w+,", line)]
    assert missing == [] and len(shown) == 6


def test_pages_link_to_files_that_exist():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
