"""The page of kinds of graph says what runs of the code say."""

import kinds_table
import pytest


@pytest.mark.long
def test_the_table_of_kinds_is_that_of_the_code():
    assert kinds_table.kept().splitlines() == kinds_table.table(kinds_table.outcomes()).splitlines()
