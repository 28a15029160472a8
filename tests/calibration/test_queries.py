"""Questions made from pages: which lines become one."""

from ridgerank.calibration.queries import cut_questions, is_query, reorder_words

PAGE = """Energy use in cold climates

Figure 3: Heating demand of old houses
Country   Demand   Share
Norway    12       3
The demand for heating oil fell in every region that had district heating by then.
"""


def query_texts(texts: dict[str, str], count: int = 99) -> list[str]:
    return [query.text for query in cut_questions(texts, count)]


def test_titles_captions_headers_and_phrases_are_all_made() -> None:
    assert set(query_texts({"a": PAGE})) == {
        "Energy use in cold climates",
        "Heating demand of old houses",
        "Country Demand Share",
        "oil fell in every region that had",
    }


def test_kinds_take_turns_over_pages_in_any_order_and_every_question_names_its_source() -> None:
    questions = cut_questions({"a": PAGE, "b": PAGE.replace("cold", "warm")}, 2)
    assert [(query.text, query.source) for query in questions] == [
        ("Energy use in cold climates", "a"),
        ("Heating demand of old houses", "b"),
    ]
    pages = {f"{number:02}": PAGE.replace("Energy", f"Energy plan {number}") for number in range(9)}
    forwards, backwards = query_texts(pages), query_texts(dict(reversed(pages.items())))
    assert forwards == backwards
    assert len(set(forwards)) == len(forwards)


def test_what_nobody_would_ask_is_not_a_query() -> None:
    assert query_texts({"a": "", "b": "12 345\n6.7", "c": "x y z"}) == []
    assert not any(map(is_query, ["", "one two", "no no no no", "12 34 56 78", "word " * 30]))


def test_reordered_words_are_two_thirds_of_the_question_in_another_order() -> None:
    text = "oil fell in every region that had district heating"
    words = reorder_words(text).split()
    assert set(words) == set(text.split()) - {"in", "that", "heating"}
    assert words != [word for word in text.split() if word in words]
    assert reorder_words(text) == reorder_words(text)
