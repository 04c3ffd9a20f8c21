"""The measure beside another checkout: each process imports the package of its own checkout, wherever the measure is started."""

from pathlib import Path

import bench_before
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)  # here lies a package, too
    return tmp_path


def test_the_package_of_the_checkout_is_measured(checkout):
    (checkout / "bulksample").mkdir()
    (checkout / "bulksample" / "__init__.py").write_text("raise SystemExit(7)")
    with pytest.raises(SystemExit, match="status 7"):
        bench_before.before(checkout, "rmat", (1,), 1)


def test_a_folder_without_a_package_is_refused(checkout):
    with pytest.raises(SystemExit, match=r"has no package bulksample|status 1"):
        bench_before.before(checkout, "rmat", (1,), 1)
