#!/usr/bin/env bash
# Run what emulation cannot show, the tests marked cuda, and the benchmark, on one GPU, in two calls of five minutes.
#
#   CALL=1 bash bench/on_a_card.sh [OUT]      is all right? 300 seconds, and a few more to end what hangs
#   CALL=2 bash bench/on_a_card.sh [OUT]      how fast is it? 340 seconds
#   bash bench/on_a_card.sh [OUT]             all of both, and what takes longer: 30 minutes
#
# Results and logs go to the folder OUT (default: the variable OUT, or on-a-card), seven files; the last 60 lines set figures beside goals.
# Needs Python, PyTorch, CuPy, typer and a C++ compiler, and no network; wheels in .whl/ are used where the machine lacks them (by pip), and
# compiled kernels in .cubins/. on_a_card.json says what passed, what failed and what is missing; another call with the same OUT, or a copy of
# its files, goes on with the sections that have not passed. See gpu/plan.py. Variables:
#
#   PYTHON      the interpreter (python3)
#   LIMIT       the seconds for everything; the limits of sections grow with it
#   SECTIONS    the only ones to run, by commas, and what they need
#   MORE        sections of the other call to run as well, such as those that were mended
#   REHEARSE=1  all of it on an emulated device, at small sizes
#
# Exits 0 if all is well, 2 if nothing can be launched here, 1 otherwise.
set -u
OUT=$(realpath -m "${1:-${OUT:-on-a-card}}")
cd "$(dirname "$0")/.." || exit 1
export OUT PYTHON="${PYTHON:-python3}" PYTHONUNBUFFERED=1
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-/tmp/bulksample-cache}"
export BULKSAMPLE_BENCH_CACHE="${BULKSAMPLE_BENCH_CACHE:-$XDG_CACHE_HOME/graphs}"
export PYTHONPATH="$PWD:$PWD/tests:$PWD/bench${PYTHONPATH:+:$PYTHONPATH}"
if ! mkdir -p "$OUT" "$XDG_CACHE_HOME" || [[ ! -w $OUT || ! -w $XDG_CACHE_HOME ]]; then
  echo "cannot write to $OUT or $XDG_CACHE_HOME: name another folder, and another XDG_CACHE_HOME" >&2
  exit 1
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "$PYTHON is not Python 3.11 or newer: name another by PYTHON" >&2
  exit 1
fi

if compgen -G ".cubins/*.cubin" >/dev/null; then
  mkdir -p "$XDG_CACHE_HOME/bulksample" && cp .cubins/*.cubin "$XDG_CACHE_HOME/bulksample/"
fi

# The wheels go to a folder of their own, behind what the machine has: nothing of the machine is replaced.
shopt -s nullglob
wheels=(.whl/*.whl)
if ((${#wheels[@]})); then
  if ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
    echo "$PYTHON has no pip, which installs the wheels in .whl/: install pip, name another Python by PYTHON, or move .whl/ away" >&2
    exit 1
  fi
  site="$XDG_CACHE_HOME/site"
  for wheel in "${wheels[@]}"; do  # one by one: of another Python or platform, a wheel is refused, and all that are named with it
    "$PYTHON" -m pip install -q --no-index --no-deps --no-cache-dir --ignore-installed --prefix "$site" "$wheel" >>"$OUT/setup.txt" 2>&1 ||
      echo "$wheel could not be installed, see setup.txt"
  done
  export PATH="$PATH:$site/bin:$site/local/bin" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$site/lib:$site/local/lib"
  mapfile -t folders < <("$PYTHON" -c 'import sys; print(*(path for path in sys.path if path.endswith("-packages")), sep="\n")')
  for folder in "${folders[@]}" "$site"/{,local/}lib/python3*/{site,dist}-packages; do PYTHONPATH+=":$folder"; done
fi

# build_native: by setup.py, or where pybind11 is missing by the compiler alone, with the headers of pybind11 that PyTorch ships
build_native() {
  local suffix built digest include
  suffix=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))') built="bulksample/_native$suffix"
  if [[ -e $built ]] && "$PYTHON" -c 'import sys; from bulksample import backends; sys.exit(backends.why_not("native"))'; then
    echo "the native back end is there: $built"
  elif "$PYTHON" -c 'import pybind11, setuptools' 2>/dev/null; then
    "$PYTHON" setup.py -q build_ext --build-lib build/card && mv "build/card/$built" "$built"  # in one step: others may import it
  else
    echo "pybind11 or setuptools is missing: compiled with the headers of pybind11 that PyTorch ships"
    digest=$("$PYTHON" -c 'import runpy; from pathlib import Path
print(runpy.run_path("bulksample/backends/sources.py")["native_digest"](Path("csrc")))')
    mapfile -t include < <("$PYTHON" -c 'import sysconfig, torch.utils.cpp_extension as torch
for path in (sysconfig.get_path("include"), *torch.include_paths()): print(f"-I{path}")')
    mkdir -p build && "${CXX:-g++}" -std=c++17 -O3 -fopenmp -fvisibility=hidden -fPIC -shared "-DBULKSAMPLE_SOURCES=\"$digest\"" -Icsrc \
      "${include[@]}" csrc/unit_*.cpp -o "build/_native$suffix" && mv "build/_native$suffix" "$built"
  fi && "$PYTHON" -c 'import sys; from bulksample import backends; sys.exit(backends.why_not("native"))'
}
export -f build_native
exec "$PYTHON" -m gpu.runner
