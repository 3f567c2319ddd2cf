"""Command lines that name settings: a mistake is one sentence, before anything is trained."""

import pytest

from benchmarks.__main__ import parser


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--changes", "neighbourhood=null,weight=0.4"],
            "'weight' is a part of 'neighbourhood', which must then be an object; got null",
        ),
        (
            ["--changes", "temperature=0.2,cosine=true"],
            "'temperature' is a part of 'cosine', which must then be an object; got true",
        ),
        (["--terms", "0,0.01,25"], "must be numbers above 0; got '0,0.01,25'"),
        (["--terms", "none", "0.4,0.01,-1"], "must be numbers above 0; got '0.4,0.01,-1'"),
        (["--terms", "none,order"], "must be none, or weight,floor,neighbours[,popularity][,order]"),
        (["--terms", "0.4,0.01,order"], "must be none, or weight,floor,neighbours[,popularity][,order]"),
    ],
)
def test_a_mistake_is_one_sentence(words, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(["diginetica", *words])
    assert said in capsys.readouterr().err


def test_terms_may_have_an_exponent_and_an_order():
    found = parser().parse_args(["diginetica", "--terms", "none", "0.4,0.01,5", "1,0.02,6,0.2,order"]).terms
    assert found[0] is None
    known = [(term.weight, term.floor, term.neighbours, term.popularity, term.order) for term in found[1:]]
    assert known == [(0.4, 0.01, 5, 0, "ignore"), (1, 0.02, 6, 0.2, "use")]


def test_settings_within_others_that_have_fields_are_taken():
    words = ['neighbourhood={"neighbours":5},weight=0.4', "neighbourhood=null"]
    found = parser().parse_args(["diginetica", "--changes", *words]).changes
    assert found == [{"neighbourhood": {"neighbours": 5}, "weight": 0.4}, {"neighbourhood": None}]
