"""The headers are one source for g++ and CUDA: NVRTC compiles them without a GPU, for every architecture we name."""

import re

import pytest

from bulksample.backends.sources import kernel_directory

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="the cuda-bindings wheel is not installed")

# One kernel that instantiates every row function, so that a header that only g++ accepts shows here.
PROGRAM = """
#include "uniform_row.h"
#include "race_row.h"
#include "hash_row.h"
#include "quantise_row.h"
extern "C" __global__ void rows(bs_u64 seed, bs_u32 d, bs_u32 s, bs_u32* picks, bs_u64* bitmap, double* keys, BsSlot* table) {
  const BsStream stream{seed, blockIdx.x, threadIdx.x, 0u};
  bs_floyd_row(stream, d, s, picks);
  bs_floyd_row_large(stream, d, s, picks, bitmap);
  bs_replacement_row(stream, d, s, picks);
  keys[0] = bs_key(stream, d, 2.0);
  keys[1] = bs_inclusion(keys[0], 3.0);
  keys[2] = bs_before(keys[0], 1, keys[1], 2);
  const BsHeader header = bs_header(keys[0], keys[1], 15u, s & 1u);
  const BsGrid grid = bs_grid(header, s & 1u);
  picks[1] = bs_code(keys[0], grid, 15u, bs_block(stream, d).v[0]) + bs_is_constant(header, false);
  keys[3] = bs_decoded(bs_code_at((const unsigned char*)picks, d, 4), grid) + bs_constant(header, s);
  picks[0] = bs_find_or_insert(table, 8, d, s) + bs_find(table, 8, d);
}
"""


def check(result):
    error, *values = result
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS, error
    return values[0] if values else None


def filled_by_nvrtc(size):
    """Memory that NVRTC overwrites in place: a fresh object, never one of Python's shared one-byte strings."""
    return bytes(size + 16)


def compiled(source, arch, what="CUBIN"):
    """Compile a source by NVRTC: to machine code, or to PTX."""
    headers = sorted(kernel_directory().glob("*.h"))
    code = [path.read_bytes() for path in headers if path.name != "native.h"]
    names = [path.name.encode() for path in headers if path.name != "native.h"]
    program = check(nvrtc.nvrtcCreateProgram(source.encode(), b"rows.cu", len(code), code, names))
    options = [b"-std=c++17", f"--gpu-architecture=sm_{arch}".encode()]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = filled_by_nvrtc(check(nvrtc.nvrtcGetProgramLogSize(program)))
    check(nvrtc.nvrtcGetProgramLog(program, log))
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    made = filled_by_nvrtc(check(getattr(nvrtc, f"nvrtcGet{what}Size")(program)))
    check(getattr(nvrtc, f"nvrtcGet{what}")(program, made))
    return made


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_row_headers_compile_for_the_device(arch):
    assert compiled(PROGRAM, arch).startswith(b"\x7fELF")


def test_a_broken_kernel_would_show():
    with pytest.raises(AssertionError, match="no_such_function"):
        compiled(PROGRAM.replace("bs_inclusion", "no_such_function"), 90)


WAITS = {
    "a block": "bs_wait_for(flag, &told);",
    "a thread": "if (threadIdx.x == 0) { bs_wait(flag); bs_acquired(flag); } __syncthreads();",
}
ORDERED = re.compile(r"^\s+(?:@\S+ )?(ld\.volatile|membar\.gl|fence\.\S+\.gpu|bar\.sync|ld\.global)", re.M)


@pytest.mark.parametrize("waits", WAITS)
def test_a_thread_that_waits_for_another_block_has_a_fence_before_what_it_reads_next(waits):
    """Without one between the wait and the barrier, the thread that waits may read what it would have read before the word was set."""
    source = f"""
#include "look_back.h"
extern "C" __global__ void reader(const bs_u64* flag, const bs_i32* data, bs_i32* out) {{
  __shared__ bs_u64 told;
  {WAITS[waits]}
  out[threadIdx.x] = data[threadIdx.x] + (bs_i32)told;
}}
"""
    instructions = ORDERED.findall(compiled(source, 90, "PTX").decode())
    after = instructions[len(instructions) - instructions[::-1].index("ld.volatile") :]
    assert after[0].startswith(("membar", "fence")), instructions
    assert "bar.sync" in after
