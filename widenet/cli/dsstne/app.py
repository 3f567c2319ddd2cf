"""The commands of `widenet dsstne`."""

import typer

from widenet.cli.dsstne import data, generate

app = typer.Typer(help="Amazon DSSTNE's commands, with its flags, and its files.", no_args_is_help=True, rich_markup_mode=None)
app.command("generateNetCDF")(generate.generate)
app.command("import-data")(data.import_data)
app.command("export-data")(data.export_data)
