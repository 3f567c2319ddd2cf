"""Text tables: columns that line up, and ids only where they say more than the title."""

from widenet.cli.tables import methods_table, metrics_table, recommendations_table
from widenet.metrics.ranking import Metrics
from widenet.runs import Recommendation


def test_metrics_stand_a_line_each_with_a_column_for_each_k():
    metrics = {"recall@5": 0.25, "ndcg@5": 0.125, "recall@20": 1.0, "ndcg@20": 0.5, "num_examples": 1234.0}
    assert metrics_table(metrics, [5, 20]).splitlines() == [
        "                    @5       @20",
        "recall          0.2500    1.0000",
        "ndcg            0.1250    0.5000",
        "over 1,234 users",
    ]


def test_methods_have_a_row_each_with_intervals_below_and_a_table_for_each_k():
    """A run may have the name of a baseline."""
    run = Metrics({"recall@5": 0.25, "recall@20": 0.5, "num_examples": 1234.0})
    run.intervals = {"recall@5": (0.2, 0.3)}
    other = Metrics({"recall@5": 1.0, "num_examples": 7.0})
    assert methods_table([("item-kNN", run), ("item-kNN", other)], [5, 20], "points").splitlines() == [
        "@5        recall  points",
        "item-kNN  0.2500   1,234",
        "  from    0.2000        ",
        "  to      0.3000        ",
        "item-kNN  1.0000       7",
        "",
        "@20       recall  points",
        "item-kNN  0.5000   1,234",
        "item-kNN               7",
    ]


def test_a_recommendation_shows_its_id_where_it_is_not_the_title():
    rows = [Recommendation("7", "Emma", 0.5), Recommendation("8", "8", 0.0123449)]
    assert recommendations_table(rows).splitlines() == ["   1  0.5         Emma  (7)", "   2  0.01234     8"]
    assert recommendations_table([]) == ""
