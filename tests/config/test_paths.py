from config.paths import CHECKOUT, absolute_store


def test_a_relative_store_lies_in_the_checkout_whatever_the_working_directory():
    assert (
        absolute_store("sqlite:///.precedent/decisions.db") == f"sqlite:///{CHECKOUT}/.precedent/decisions.db"
    )


def test_an_absolute_store_stays():
    assert absolute_store("sqlite:////var/lib/precedent.db") == "sqlite:////var/lib/precedent.db"


def test_a_store_that_is_no_file_stays():
    assert absolute_store("redis://store:6379/0") == "redis://store:6379/0"
