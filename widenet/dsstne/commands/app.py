"""The commands of `widenet dsstne`."""

import typer

from widenet.dsstne.commands import data, encoder, generate, knn_search, model, predict, train, translate

app = typer.Typer(
    help="Amazon DSSTNE's commands, with its flags, and its files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("generateNetCDF")(generate.generate)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("encoder")(encoder.encoder)
app.command("knn-search", cls=knn_search.SeveralFiles)(knn_search.knn_search)
app.command("translate")(translate.translate)
app.command("import-data")(data.import_data)
app.command("export-data")(data.export_data)
app.command("export-model")(model.export_model)
