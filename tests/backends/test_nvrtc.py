"""Launches, streams, ranges, the devices of ranks and the shared pool, with a stand-in for CuPy."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from emulation.fake_cupy import elf, installed
from emulation.host import compiler
from zoo import random_matrix

from bulksample import LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.backends.cuda import cubins, nvrtc

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
MATRIX = random_matrix(200, 3000, 1)


def digests(engine, setting="sage"):
    seeds = Selection.of([np.arange(9), np.arange(50, 60)], 200)
    return [m.digest() for m in samplers.make(setting, (40, 3)).sample_bulk(LocalAdjacency(MATRIX, engine), seeds, Stream(1))]


@pytest.mark.parametrize("setting", ["sage", "labor", "ladies", "fastgcn"])
def test_a_device_draws_what_the_reference_draws(monkeypatch, setting):
    with installed(monkeypatch) as cupy:
        assert backends.available()[-1] == "cuda"
        engine = backends.make("cuda")
        assert digests(engine, setting) == digests(backends.make("reference"), setting)
        compiled = [options for options in cupy.seen if isinstance(options, tuple)]
        assert 0 < len(compiled) <= len({kernel.file for kernel in nvrtc.kernels().values()})  # a file once
        assert all(options == tuple(cubins.options("90")) for options in compiled)
        assert digests(backends.make("cuda"), setting) == digests(engine, setting)
        assert len([options for options in cupy.seen if isinstance(options, tuple)]) == len(compiled)  # kept for the next process


def test_work_is_done_on_a_stream_of_its_own_inside_a_range(monkeypatch):
    with installed(monkeypatch) as cupy:
        engine = backends.make("cuda")
        cupy.seen.clear()
        engine.random_words(1, 2, 0, 10)
        assert [event for event in cupy.seen if isinstance(event, str)] == [
            "device 0",
            "stream",
            "random_words",
            "pop",
            "left stream",
            "left device 0",
        ]


@pytest.mark.parametrize(("rank", "device"), [("0", 0), ("1", 1), ("2", 0), ("5", 1)])
def test_ranks_take_the_devices_of_their_machine_in_turn(monkeypatch, rank, device):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setenv("MPI_LOCALRANKID", rank)
    with installed(monkeypatch, devices=2) as cupy:
        backends.make("cuda").random_words(1, 2, 0, 10)
        assert f"device {device}" in cupy.seen
        assert f"device {1 - device}" not in cupy.seen


def test_a_graph_that_does_not_fit_is_given_to_kernels_by_its_address(monkeypatch):
    with installed(monkeypatch, free_bytes=64):
        engine = backends.make("cuda")
        given = nvrtc._pointer(np.zeros(3))
        assert isinstance(given, np.uintp)
        with pytest.warns(UserWarning, match="pinned memory of the host"):
            engine.device.matrix(MATRIX)


def test_a_device_is_asked_for_small_fetches_and_says_what_it_fetches(monkeypatch):
    with installed(monkeypatch) as cupy:
        assert backends.make("cuda").device.launch.l2_fetch_bytes == 32
        assert cupy.limits == {5: 32}


@pytest.mark.parametrize(("set_", "get", "told"), [(False, True, 64), (False, False, 0)])
def test_a_driver_without_that_limit_is_taken_as_it_is(monkeypatch, set_, get, told):
    def refuse(*arguments):
        raise RuntimeError("cudaErrorUnsupportedLimit")

    with installed(monkeypatch) as cupy:
        for name, allowed in (("deviceSetLimit", set_), ("deviceGetLimit", get)):
            if not allowed:
                setattr(cupy.cuda.runtime, name, refuse)
        assert backends.make("cuda").device.launch.l2_fetch_bytes == told


def test_no_device_and_no_library_are_distinguished(monkeypatch):
    with installed(monkeypatch, devices=0):
        assert backends.why_not("cuda") == "CuPy sees no device"
    monkeypatch.setitem(sys.modules, "cupy", None)
    nvrtc.unavailable_because.cache_clear()
    assert "CuPy cannot be imported" in backends.why_not("cuda")
    nvrtc.unavailable_because.cache_clear()


def test_an_edited_header_is_compiled_anew_and_a_refusal_gives_the_log(monkeypatch, tmp_path):
    for name in ("a.h", "k.cu", "broken.cu"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(cubins, "kernel_directory", lambda: tmp_path)
    with installed(monkeypatch):
        before = cubins.compiled(tmp_path / "k.cu", "90")
        assert cubins.compiled(tmp_path / "k.cu", "90") == before
        assert cubins.compiled(tmp_path / "k.cu", "100") != before
        (tmp_path / "a.h").write_text("edited")
        assert cubins.compiled(tmp_path / "k.cu", "90") != before
        with pytest.raises(RuntimeError, match=r"NVRTC refuses broken.cu for sm_90: the log"):
            cubins.compiled(tmp_path / "broken.cu", "90")


def test_a_cache_serves_the_same_sources_in_another_folder(monkeypatch, tmp_path):
    made = []
    with installed(monkeypatch) as cupy:
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
            for file in ("a.h", "k.cu"):
                (tmp_path / name / file).write_text(file)
            monkeypatch.setattr(cubins, "kernel_directory", lambda name=name: tmp_path / name)
            made.append(cubins.compiled(tmp_path / name / "k.cu", "90"))
        assert made[0] == made[1]
        assert sum(isinstance(event, tuple) for event in cupy.seen) == 1


def test_a_damaged_cubin_is_compiled_anew_and_a_new_format_leaves_older_ones(monkeypatch, tmp_path):
    (tmp_path / "k.cu").write_text("k.cu")
    monkeypatch.setattr(cubins, "kernel_directory", lambda: tmp_path)
    with installed(monkeypatch) as cupy:
        made = cubins.compiled(tmp_path / "k.cu", "90")
        sound = made.read_bytes()
        for damaged in (b"", sound[:-1], sound + b"\0", sound[:70] + b"\1" + sound[71:]):
            made.write_bytes(damaged)
            assert cubins.compiled(tmp_path / "k.cu", "90") == made
            assert made.read_bytes() == sound
        made.unlink()
        made.mkdir()  # cannot be read as a file, or replaced by one
        with pytest.warns(UserWarning, match="kept for this process only"):
            elsewhere = cubins.compiled(tmp_path / "k.cu", "90")
        assert elsewhere.read_bytes() == sound
        assert elsewhere.parent != made.parent
        monkeypatch.setattr(cubins, "FORMAT", cubins.FORMAT + 1)
        assert cubins.compiled(tmp_path / "k.cu", "90").name != made.name
        assert sum(isinstance(event, tuple) for event in cupy.seen) == 1 + 4 + 1 + 1


def test_threads_may_compile_the_same_file_at_once(monkeypatch, tmp_path):
    (tmp_path / "k.cu").write_text("k.cu")
    monkeypatch.setattr(cubins, "kernel_directory", lambda: tmp_path)
    with installed(monkeypatch), ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            made = set(pool.map(lambda _: cubins.compiled(tmp_path / "k.cu", "90"), range(8)))
            assert len(made) == 1
            made.pop().unlink()


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        (b"", "no ELF file"),
        (elf(b"text").replace(b"ELF\x02", b"ELF\x01"), "no ELF file"),
        (elf(b"text")[:-2], "has 130 bytes, and its tables describe 132"),
        (elf(b"text") + b"\0", "has 133 bytes"),
    ],
)
def test_what_is_no_whole_elf_file_is_refused(code, refused):
    with pytest.raises(RuntimeError, match=refused):
        cubins.whole(code)


def test_the_byte_that_cupy_strips_is_restored():
    assert cubins.whole(elf(b"text")[:-1]) == cubins.whole(elf(b"text")) == elf(b"text")


def test_memory_of_a_shared_pool_is_taken_and_given_back(monkeypatch):
    given_back = []

    def take(size, device, stream):
        if size > 100:
            raise RuntimeError("CUDA out of memory")
        return 1000 + stream

    with installed(monkeypatch) as cupy:
        nvrtc.share_pool(take, given_back.append)
        taken, back = cupy.allocator
        assert taken(50, 0) == 1077
        back(1077, 0)
        assert given_back == [1077]
        with pytest.raises(MemoryError, match="out of memory"):
            taken(500, 0)
