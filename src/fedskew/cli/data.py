"""`fedskew data`: files of data sets."""

from typing import Annotated

import typer

from fedskew.cli.documents import FetchedData
from fedskew.cli.options import DataDir, Json, Quiet
from fedskew.cli.terminal.progress import answer, byte_progress, print_data

data_app = typer.Typer(help="Data files: list, verify, fetch.", rich_markup_mode=None, no_args_is_help=True)


@data_app.command("list", short_help="Which data files you have.")
def data_list(json_: Json = False, quiet: Quiet = False, data_dir: DataDir = None) -> None:
    """Which files of each data set you have, how large they are and where they come from.

    Example: fedskew data list
    """
    from fedskew.data.fetch import listing
    from fedskew.data.places import data_root

    print_data(listing(data_dir), data_root(data_dir), json_=json_, quiet=quiet)


@data_app.command("verify", short_help="Check your data files against their checksums.")
def data_verify(json_: Json = False, quiet: Quiet = False, data_dir: DataDir = None) -> None:
    """Check your data files against their official checksums; exit code 1 if one is not good.

    Example: fedskew data verify --data-dir ~/data
    """
    from fedskew.data.fetch import verify
    from fedskew.data.places import data_root

    checked = verify(data_dir)
    print_data(checked, data_root(data_dir), json_=json_, quiet=quiet)
    if any(status.state in ("other checksum", "missing") for status in checked):
        raise typer.Exit(1)


@data_app.command("fetch", short_help="Download, check and extract the files of a data set.")
def data_fetch(
    name: Annotated[str, typer.Argument(help="mnist | fashion_mnist | cifar10 | cifar100 | svhn | svhn-extra")],
    mirror: Annotated[
        str | None, typer.Option(help="Base address under which the files have their official names.")
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
    data_dir: DataDir = None,
) -> None:
    """Download the official files of a data set, check and extract them; an interrupted download resumes.

    Example: fedskew data fetch cifar10
    """
    from fedskew.data.fetch import fetch

    with byte_progress(name, enabled=not (json_ or quiet)) as report:
        paths = fetch(name, data_dir, mirror, report)
    document: FetchedData = {"dataset": name, "files": [str(path) for path in paths]}
    answer(document, "there: " + ", ".join(document["files"]), json_=json_, quiet=quiet)
