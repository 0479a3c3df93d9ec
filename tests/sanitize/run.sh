#!/usr/bin/env bash
# The native code under AddressSanitizer with UBSan, ThreadSanitizer and valgrind. Nothing is built in the checkout;
# its modules must be up to date, as `make sanitize` sees to, because valgrind runs with copies of them.
#
#   tests/sanitize/run.sh                builds in a temporary directory, which is removed; the modules are kept in the
#                                        cache of ags1, under a hash of all that they are made of
#   AGS1_SANITIZE_DIR=DIR ... run.sh     builds in DIR, which is kept: the next run compiles only what changed
#
# AGS1_OPENSSL and AGS1_OPENSSL_SOURCE choose the OpenSSL, as everywhere; it is not instrumented itself.
# Leaks: valgrind looks for them; LeakSanitizer would drown ours in CPython's.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=$root/.venv/bin/python
[[ -x $python ]] || python=$(command -v python3)

missing=
for tool in gcc valgrind; do
    command -v "$tool" >/dev/null || missing+=" $tool"
done
for library in libasan.so libubsan.so libtsan.so; do
    [[ $(gcc -print-file-name=$library 2>/dev/null) == /* ]] || missing+=" $library"
done
if [[ -n $missing ]]; then
    echo "sanitize: not here:$missing" >&2
    # Where nothing may be skipped, a missing tool is a failure.
    [[ -z ${AGS1_NO_SKIP:-} ]] && exit 0 || exit 1
fi

if [[ ! -f $root/build/flags.json ]] || ! compgen -G "$root/ags1/core/gcm.*.so" >/dev/null; then
    echo "sanitize: the modules are not built: make build" >&2
    exit 1
fi

if [[ -n ${AGS1_SANITIZE_DIR:-} ]]; then
    work=$AGS1_SANITIZE_DIR
    mkdir -p "$work"
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi

build() { # NAME SANITIZERS: the tree in $work/NAME, compiled
    local tree=$work/$1 kept=$cache/sanitized-$made_of-$1
    mkdir -p "$tree"
    tar -c -C "$root" --exclude='*.so' --exclude=__pycache__ --exclude=tests/interop/java/target \
        ags1 buildtools include tests setup.py pyproject.toml README.md LICENSE MANIFEST.in CHANGELOG.md |
        tar -x -C "$tree"
    if [[ -d $kept ]]; then
        touch "$kept"
        cp -r "$kept/ags1" "$tree"
        return
    fi
    (cd "$tree" && AGS1_SANITIZE=$2 "$python" setup.py --quiet build_ext --inplace >build.log 2>&1) ||
        { cat "$tree/build.log" >&2; return 1; }
    mkdir "$kept.$$"
    (cd "$tree" && find ags1 -name '*.so' -exec cp --parents {} "$kept.$$" ';')
    mv -T "$kept.$$" "$kept" 2>/dev/null || rm -rf "$kept.$$"
}

# flags.json has the flags, the directives and the libraries of the checkout's own build, which the trees have too.
cache=${AGS1_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ags1}
mkdir -p "$cache"
find "$cache" -maxdepth 1 -name 'sanitized-*' -mtime +14 -exec rm -rf {} +
made_of=$(cd "$root" && {
    cat build/flags.json
    gcc --version
    "$python" -VV
    "$python" -c 'import Cython, setuptools; print(Cython.__version__, setuptools.__version__)'
    find ags1 include buildtools setup.py -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -path 'buildtools/*.py' -o \
        -name setup.py \) -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
} | sha256sum | cut -c1-20)

step() {
    echo "sanitize: $1 (${SECONDS} s)"
}

check() { # NAME COMMAND...: say so and go on if it fails, so that one run shows everything
    step "$1"
    "${@:2}" || { echo "sanitize: FAILED: $1"; touch "$work/failed"; }
}

rm -f "$work/failed"
step "building"
# The checkout was built, and OpenSSL with it if it had to be: neither of the two makes it.
build thread thread &
second=$!
build address address,undefined
wait $second
mkdir -p "$work/plain"
tar -c -C "$root" --exclude=__pycache__ ags1 tests | tar -x -C "$work/plain"

export PYTHONDONTWRITEBYTECODE=1

under_address() {
    # Everything that the Python objects are made of comes from malloc, so that it is watched too.
    (cd "$work/address" && env \
        LD_PRELOAD="$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1:strict_string_checks=1 \
        UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 PYTHONMALLOC=malloc PYTHONPATH="$work/address" \
        timeout 1200 "$@")
}

under_thread() {
    # Without address randomisation: older run-time libraries cannot live with as much of it as new kernels have.
    (cd "$work/thread" && env LD_PRELOAD="$(gcc -print-file-name=libtsan.so)" \
        TSAN_OPTIONS=exitcode=66:halt_on_error=0:second_deadlock_stack=1:suppressions=$root/tests/sanitize/thread.supp \
        PYTHONPATH="$work/thread" \
        timeout 1200 setarch -R "$@")
}

under_valgrind() {
    local report=$work/valgrind
    rm -f "$report".*
    (cd "$work/plain" && env PYTHONMALLOC=malloc PYTHONPATH="$work/plain" timeout 1200 \
        valgrind --quiet --track-origins=yes --leak-check=full --show-leak-kinds=definite \
        --errors-for-leak-kinds=definite --xml=yes --xml-file="$report.%p" "$@") || return 1
    local status=0 file
    for file in "$report".*; do
        "$python" "$root/tests/sanitize/valgrind_errors.py" "$file" || status=1
    done
    return $status
}

instrumented() { # The modules call the sanitizer: a build without it would find nothing.
    local module
    for module in "$work/$1"/ags1/core/{ahead,batch,blocks,buffer,descriptors,gathered,gcm,layout}.*.so \
        "$work/$1"/ags1/parquet/native/{conversion,modules,nodes,pages,thrift}.*.so \
        "$work/$1"/ags1/parquet/{rewrite/_target_chunk,structure/chunks,structure/consistency,verify/module_walk}.*.so; do
        grep -q "$2" "$module" || { echo "$module is not instrumented" >&2; return 1; }
    done
}

# The driver takes every native function through all combinations of key sizes, protections and numbers of threads, with
# memory that ends where the buffer ends. Of the tests, those run here that go where it does not: kinds of buffers, limits,
# edges of windows and lengths, refused arguments, short reads and full disks, forks and ends of threads, random input to
# native parsers. What is left out runs without sanitizers in `make test`, and does here what something else does already:
tests=(
    tests/core/test_buffer.py tests/test_layout.py tests/core/test_gcm.py tests/core/test_blocks.py tests/core/test_batch.py
    tests/core/test_ahead.py tests/core/test_gathered.py tests/test_codec.py tests/parquet/test_module.py tests/parquet/test_pages.py
    tests/parquet/test_conversion.py tests/parquet/test_conversion_views.py
    # Random input in buffers without anything behind them; not to the parsers that are Python (avro, inspect), nor whole
    # streams and files, whose time goes into the slow implementations that they are compared with.
    "tests/test_fuzz_targets.py::test_random_inputs["{reader,key_metadata,layout,thrift,parquet_pages}"]"
    # All pairs of protections, with either form and checksums, on any number of threads: conversions() in the driver.
    --deselect=tests/parquet/test_conversion.py::test_every_protection_to_every_other
    # stop(), wait() and del: to_file() in the driver; the cycle stays.
    "--deselect=tests/parquet/test_conversion.py::test_threads_end_with_their_conversion["{stop,wait,del}"]"
    # Races that are run again and again for their outcome, and the GIL's release: together() in the driver, and there
    # under ThreadSanitizer too.
    --deselect=tests/core/test_blocks.py::test_many_python_threads_share_one_key_and_one_source
    --deselect=tests/core/test_blocks.py::test_python_runs_while_a_stream_is_decrypted
    --deselect=tests/test_codec.py::test_the_first_of_bad_blocks_everywhere_is_named_whichever_thread_is_faster
    --deselect=tests/test_codec.py::test_the_first_bad_block_is_named_whatever_the_threads_do
    --deselect=tests/core/test_batch.py::test_the_first_buffer_is_named_when_all_are_damaged
    # The helper of the parent may start or end when the child is forked, with a lock of the sanitizer's own, which nobody
    # opens in the child: one run of 75 waited for ever.
    --deselect=tests/core/test_gathered.py::test_a_forked_child_never_waits_for_its_parents_windows
    --deselect=tests/core/test_ahead.py::test_a_forked_child_starts_anew_and_never_waits_for_its_parents_helpers
    # Thousands of vectors through one function.
    --deselect=tests/core/test_gcm.py::test_nist_encryptions_are_reproduced
    --deselect=tests/core/test_gcm.py::test_nist_decryptions_succeed_or_fail_as_they_should
    # These look for secrets in all memory, of which a sanitizer keeps what was freed.
    -k "not left_in_memory and not anywhere_in_the_process"
)

# Where both libraries of AES-GCM were built, the driver also runs with the one that this CPU does not choose.
other=
if compgen -G "$work/address/ags1/core/boringssl.*.so" >/dev/null; then
    other=$(cd "$work/plain" && "$python" -c \
        'import ags1; print("openssl" if ags1.backend()["cipher"] == "BoringSSL" else "boringssl")')
else
    echo "sanitize: BoringSSL was not built, so it is not checked" >&2
fi

with_address() {
    check "instrumented: address" instrumented address __asan_report_load
    check "driver under AddressSanitizer and UBSan" under_address "$python" tests/sanitize/driver.py 100
    check "tests under AddressSanitizer and UBSan" under_address "$python" -m pytest -q -p no:cacheprovider --tb=short \
        "${tests[@]}"
    [[ -z $other ]] || AGS1_CIPHER=$other check "driver under AddressSanitizer and UBSan, $other" \
        under_address "$python" tests/sanitize/driver.py 30
}

with_the_others() {
    check "instrumented: thread" instrumented thread __tsan_read
    check "driver under ThreadSanitizer" under_thread "$python" tests/sanitize/driver.py 30
    check "driver under valgrind" under_valgrind "$python" tests/sanitize/driver.py 3
    [[ -n $other ]] || return 0
    AGS1_CIPHER=$other check "driver under ThreadSanitizer, $other" under_thread "$python" tests/sanitize/driver.py 10
    AGS1_CIPHER=$other check "driver under valgrind, $other" under_valgrind "$python" tests/sanitize/driver.py 1
}

# Side by side, which take about as long; what the second says comes after the first.
with_the_others >"$work/others.log" 2>&1 &
second=$!
with_address 2>&1
wait $second
cat "$work/others.log"

step "done"
[[ ! -e $work/failed ]]
