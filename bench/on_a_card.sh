#!/usr/bin/env bash
# Ten minutes on a GPU: what emulation cannot show, the tests marked cuda, and the benchmark.
#
#   bench/on_a_card.sh [OUT]      logs and JSON go to the folder OUT (default: on-a-card), eight files at most
#
# Needs Python 3.12, PyTorch, CuPy and a C++ compiler, and no network; wheels in .whl/ are installed first. Every section is a process of
# its own with a limit, because one illegal address poisons a CUDA context for good. PYTHON names the interpreter (python3), LIMIT the
# seconds for everything (570). Exits 0 if all is well, 2 if there is no device, 1 otherwise.
set -u
OUT=$(realpath -m "${1:-on-a-card}")
cd "$(dirname "$0")/.." || exit 1
PYTHON=${PYTHON:-python3}
LIMIT=${LIMIT:-570}
mkdir -p "$OUT"
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD:$PWD/tests:$PWD/bench" XDG_CACHE_HOME="${XDG_CACHE_HOME:-/tmp/bulksample-cache}"
failed=()

# section NAME SECONDS LOG COMMAND...: run a command within its own limit and what is left of all, append its output to OUT/LOG
section() {
  local name=$1 limit=$2 log=$3 left=$((LIMIT - SECONDS)) code
  shift 3
  if ((limit > left)); then limit=$left; fi
  echo "== $name (at most $limit s)"
  if ((limit < 5)); then
    failed+=("$name: no time left")
    return 1
  fi
  timeout --kill-after=10 "$limit" "$@" >>"$OUT/$log" 2>&1
  code=$?
  tail -n 3 "$OUT/$log" | cut -c1-300
  if ((code)); then failed+=("$name: exit $code, see $log"); fi
  return $code
}

# build_native: by setup.py, or where pybind11 is missing by the compiler alone, with the headers of pybind11 that PyTorch ships
build_native() {
  if "$PYTHON" -c 'import pybind11' 2>/dev/null; then
    "$PYTHON" setup.py -q build_ext --inplace
  else
    "${CXX:-g++}" -std=c++17 -O3 -fopenmp -fvisibility=hidden -fPIC -shared -Icsrc csrc/native*.cpp \
      $("$PYTHON" -c 'import sysconfig, torch.utils.cpp_extension as torch
for path in (sysconfig.get_path("include"), *torch.include_paths()): print(f"-I{path}")') \
      -o "bulksample/_native$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')"
  fi
}
export -f build_native
export PYTHON

finish() {
  if ((${#failed[@]})); then printf 'NOT WELL  %s\n' "${failed[@]}"; else echo "all well"; fi
  echo "$SECONDS s; logs in $OUT"
  exit "$1"
}

rm -f "$OUT"/{machine,build,checks,memcheck,pytest,gpu}.txt "$OUT"/{checks,gpu}.json
{
  uname -r
  "$PYTHON" -V
  "${CXX:-g++}" --version | head -1
  nvidia-smi -L
  which mpirun compute-sanitizer
} >"$OUT/machine.txt" 2>&1
shopt -s nullglob
wheels=(.whl/*.whl)
if ((${#wheels[@]})); then
  section "install ${#wheels[@]} wheels" 60 build.txt "$PYTHON" -m pip install -q --no-index --no-deps --no-cache-dir "${wheels[@]}"
fi
section "find a device" 60 machine.txt "$PYTHON" bench/on_a_card.py --find || finish 2
section "build the native back end" 200 build.txt bash -c build_native
"$PYTHON" -c 'import bulksample._native' >>"$OUT/build.txt" 2>&1 || { failed+=("no native back end, see build.txt"); finish 1; }

section "checks" 90 checks.txt "$PYTHON" bench/on_a_card.py --json "$OUT/checks.json"
if command -v compute-sanitizer >/dev/null; then
  section "memcheck" 80 memcheck.txt compute-sanitizer --tool memcheck --error-exitcode 9 "$PYTHON" bench/on_a_card.py --samplers sage,ladies
fi
section "pytest -m cuda" 120 pytest.txt "$PYTHON" -m pytest -o addopts= -q -m cuda --maxfail=25 -p no:cacheprovider tests
for name in digests sampling numbering copying training baselines layers sharing; do
  section "gpu.py $name" 60 gpu.txt "$PYTHON" bench/gpu.py --only "$name" --graphs "$XDG_CACHE_HOME" --json "$OUT/gpu.json"
done
finish $((${#failed[@]} > 0))
