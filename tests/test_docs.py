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
    assert missing == [] and len(shown) == 5


def quoted():
    """(path, lines) of every piece of a file that the page shows, after a line that ends with its name."""
    return re.findall(r"`(pantheon/[^`\n]+)`:\n\n```cython\n(.*?)^```$", PAGE.read_text(), re.S | re.M)


@pytest.mark.parametrize(("path", "text"), quoted(), ids=lambda value: value.splitlines()[0].strip()[:40])
def test_the_pieces_of_files_are_in_them(path, text):
    assert text in (ROOT / path).read_text()


def test_each_piece_of_cython_has_its_file():
    assert len(quoted()) == PAGE.read_text().count("```cython") == 2


def test_pages_link_to_files_that_exist():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_paths_that_a_page_names_exist(page):
    """Those from the root, in the text and in commands; a * stands for what it does in a shell."""
    for path in re.findall(r"(?<![\w./~-])(?:pantheon|tests|tools|docs)/[\w./*-]*[\w/*]", page.read_text()):
        assert list(ROOT.glob(path)), f"{page.name} names {path}"


def tree_entries(text):
    """(folder, name) of every line of a tree: two spaces a step, a name, two spaces or more, what it is."""
    folders = []
    for line in text.splitlines():
        indent, name = re.match(r"( *)(\S+)", line).groups()
        del folders[len(indent) // 2:]
        yield ROOT.joinpath(*folders), name
        folders.append(name)


def test_the_trees_are_the_tree():
    """A name of a file without its ending stands for all of that stem."""
    trees = re.findall(r"^```\n(pantheon/.*?)^```$", (ROOT / "docs" / "architecture.md").read_text(), re.S | re.M)
    entries = [entry for tree in trees for entry in tree_entries(tree)]
    assert len(entries) > 60
    missing = [f"{folder / name}" for folder, name in entries
               if not ((folder / name).is_dir() if name.endswith("/") else list(folder.glob(f"{name}*")))]
    assert missing == []


def test_every_folder_of_the_engine_is_in_a_tree():
    page = (ROOT / "docs" / "architecture.md").read_text()
    for folder in (ROOT / "pantheon" / "_core").iterdir():
        assert not folder.is_dir() or folder.name == "__pycache__" or f" {folder.name}/" in page, folder
