"""What a token is worth follows from its word and its page."""

from ridgerank.store.token_salience import score_tokens


def test_a_word_met_before_is_worth_less() -> None:
    first, _, again, _, third = score_tokens(["revenue", " and", " revenue", " or", " revenue"])
    assert first > again > third


def test_of_a_divided_word_the_end_is_worth_most() -> None:
    start, end = score_tokens([" reve", "nue"])
    assert end > start


def test_numbers_and_names_are_worth_more_than_other_words_of_their_length() -> None:
    _, number, name, word = score_tokens(["x ", "2019", " Bonn", " were"])
    assert number > name > word


def test_short_lines_are_headings_and_worth_more() -> None:
    heading, *_ = score_tokens(["Revenue"])
    sentence, *_ = score_tokens(["Revenue", " is", "."])
    assert heading > sentence


def test_blanks_and_signs_are_worth_least_and_nothing_is_worth_nothing() -> None:
    worth = score_tokens(["a", "\n", " ", "...", " of"])
    assert max(worth[1:4]) < min(worth[0], worth[4])
    assert score_tokens([]).shape == (0,)
    assert score_tokens(["", "a", ""]).shape == (3,)
