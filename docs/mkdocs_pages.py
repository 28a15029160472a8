"""Pages of the site that are not files in docs/: README, changes, both references, linked results."""

import re
from pathlib import Path

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click

import ridgerank
from ridgerank.cli.main import app

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
}
LINK = re.compile(r"\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made here, and every file outside docs/ that a page links to."""
    for name, uri in ROOT_PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text()))
    files.append(File.generated(config, "options.md", content=command_reference()))
    files.append(File.generated(config, "python.md", content=python_reference()))
    for path in sorted(linked_results(ROOT)):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between the repository's folders into links between the site's pages."""
    folder = dict.fromkeys(ROOT_PAGES.values(), ".").get(page.file.src_uri, "docs")
    if page.file.src_uri.startswith("results/"):
        return markdown
    return LINK.sub(lambda link: f"]({site_target(folder, link['target'])}{link['anchor'] or ''})", markdown)


def site_target(folder: str, target: str) -> str:
    """Where the site holds what a file in `folder` of the repository links to."""
    if "://" in target:
        return target
    path = (ROOT / folder / target).resolve().relative_to(ROOT).as_posix()
    return ROOT_PAGES.get(path, path.removeprefix("docs/"))


def linked_results(root: Path) -> set[Path]:
    """The files in results/ that README or a page of docs/ links to."""
    sources = [*(root / name for name in ROOT_PAGES), *(root / "docs").glob("*.md")]
    targets = {
        (source.parent / link["target"]).resolve()
        for source in sources
        for link in LINK.finditer(source.read_text())
        if "://" not in link["target"]
    }
    return {target for target in targets if target.is_relative_to(root / "results") and target.is_file()}


def command_reference() -> str:
    """Every command with every option, from the code that `--help` reads."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="ridgerank")
    return get_docs_for_click(obj=command, ctx=context, name="ridgerank", title="Every option")


def python_reference() -> str:
    """The names of the front door, from their signatures and docstrings."""
    names = [name for name in ridgerank.__all__ if not name.startswith("_")]
    homes = [f"::: {getattr(ridgerank, name).__module__}.{name}" for name in names]
    return "\n\n".join(
        ["# Python, every name", "[By example](api.md) · the names `import ridgerank` offers.", *homes]
    )
