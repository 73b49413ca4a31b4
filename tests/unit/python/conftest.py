import pytest

from ranks_of import Ranks


@pytest.fixture
def ranks(tmp_path):
    made = Ranks(tmp_path)
    yield made
    for child in made.children:
        if child.poll() is None:
            child.kill()
            child.communicate()
