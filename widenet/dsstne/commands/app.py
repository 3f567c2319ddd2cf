"""The commands of `widenet dsstne`."""

import typer

from widenet.dsstne.commands import data, knn_search, network

app = typer.Typer(
    help="Amazon DSSTNE's commands, with its flags, and its files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("generateNetCDF")(data.generate)
app.command("train")(network.train)
app.command("predict")(network.predict)
app.command("encoder")(network.encoder)
app.command("knn-search", cls=knn_search.SeveralFiles)(knn_search.knn_search)
app.command("translate")(network.translate)
app.command("import-data")(data.import_data)
app.command("export-data")(data.export_data)
app.command("export-model")(network.export_model)
