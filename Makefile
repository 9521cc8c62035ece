# Two commands matter: `make run` measures the disk under this checkout and the engine on it, `make test` proves the code.
SHELL := /bin/bash
CARGO ?= cargo
# ldconfig, mkfs and mariadbd are there, and not found by Debian's ordinary users.
export PATH := $(PATH):/usr/sbin:/sbin
# Where `make run` measures, and its other options, e.g. make run LAB=/srv/db LAB_ARGS=--full
LAB ?= target/lab-scratch
LAB_ARGS ?=

.PHONY: run test test-peers crash mutants lint fmt docs msrv compare-fio need-rust need-linker need-peers

run: need-rust
	$(CARGO) build --release --locked -p seawall-cli
	mkdir -p "$(LAB)" target/lab
	@# The preceding build keeps the disk busy: sync first; --force marks a disturbed cell instead of refusing.
	sync
	target/release/seawall lab "$(LAB)" --out target/lab/$$(date -u +%Y%m%dT%H%M%SZ) --force $(LAB_ARGS)

# The crash tests of every commit use their own first seed, the nightly ones use the date's; they print FROM.
COMMIT_SEED = $(shell printf 9%011d 0x$$(git rev-parse --short=8 HEAD 2>/dev/null | cut -c1-8))
DATE_SEED = $(shell date +%Y%m%d00000)
# Tests, scripts and power cuts add a line for each part they skip, with the reason; `make test` and `make
# nightly` count them at the end.
SKIPPED = target/skipped
COUNT_SKIPPED = @sort -u $(SKIPPED) | awk '{ all = all (NR > 1 ? "; " : ": ") $$0 } END { print NR " skipped" all }'

test: export SEAWALL_SKIPPED = $(CURDIR)/$(SKIPPED)
test: need-rust lint
	@mkdir -p target && : >$(SKIPPED)
	FROM=$(COMMIT_SEED) $(CARGO) test --locked
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --quiet
	scripts/msrv
	@if ! { $(MAKE) need-mariadb && mariadb/fetch target/mariadb >target/mariadb-tree; }; then \
	  echo "the MariaDB plugin: no server and headers could be fetched" >>$(SKIPPED); \
	elif ! grep -q '/10\.11\.' target/mariadb-tree; then echo "the MariaDB plugin: only 10.11 has been tried" >>$(SKIPPED); \
	else FROM=$(COMMIT_SEED) mariadb/test; fi
	$(COUNT_SKIPPED)

# The conformance check of the stores that Seawall is measured against; `make bench` and `make goals` run it
# first. Outside the default build: RocksDB's takes 15 minutes on 2 cores, once. One profile for all commands,
# so that it is built once and kept.
test-peers: need-rust need-peers
	$(CARGO) clippy --release --locked -p seawall-peers -p seawall-cli --features seawall-cli/peers --all-targets -- -D warnings
	$(CARGO) test --release --locked -q -p seawall-peers

# Simulated crashes, one or more per seed: stops at the first failure with the command that replays it. make
# crash SEEDS=100000 FROM=5000
SEEDS ?= 10000
FROM ?= 0
crash: need-rust
	SEEDS=$(SEEDS) FROM=$(FROM) $(CARGO) test --release --locked -q -p seawall --test crash -- --nocapture

# Planted defects, each of which the crash tests must find: the number of seeds needed, from several first
# seeds.
BEGINNINGS ?= 5
mutants: need-rust
	SEEDS=1000 FROM=$(FROM) BEGINNINGS=$(BEGINNINGS) $(CARGO) test --release --locked -q -p seawall --test crash every_mutant -- --ignored --nocapture

lint: need-rust
	$(CARGO) fmt --all --check
	$(CARGO) clippy --all-targets --locked -- -D warnings
	$(CARGO) clippy --locked -p seawall --no-default-features -- -D warnings
	$(CARGO) clippy --locked -p seawall --features serde -- -D warnings

fmt: need-rust
	$(CARGO) fmt --all

docs: need-rust
	$(CARGO) doc --locked --no-deps --open

# The oldest supported Rust, as stated in Cargo.toml.
msrv: need-rust
	scripts/msrv

# Processes under load, killed at random moments; each database is opened again and verified. ROUNDS=1000
# takes about twenty minutes.
ROUNDS ?= 20
kill9: need-rust
	SEAWALL_KILL9_ROUNDS=$(ROUNDS) $(CARGO) test --release --locked -q -p seawall --test kill9 -- --nocapture

# Backups under load: seeds on the simulated disk, each backup restored before and after a crash, and rounds
# of a process that is killed.
BACKUP_SEEDS ?= 200
backups: need-rust
	SEEDS=$(BACKUP_SEEDS) $(CARGO) test --release --locked -q -p seawall --test backup a_backup_under_load -- --nocapture
	ROUNDS=$(ROUNDS) $(CARGO) test --release --locked -q -p seawall --test backup_kill9 -- --nocapture

# Power cuts below ext4, xfs and btrfs, on a disk that records every write and flush; needs root, FUSE and
# loop devices, and names what is missing. POWERCUT_ARGS="--seed 5 --fs xfs" and more:
# crates/seawall-powercut/README.md. With planted defects: the number of rounds until each is found.
POWERCUT_ARGS ?=
.PHONY: backups powercut powercut-mutants
powercut: need-rust need-mkfs
	$(CARGO) clippy --locked -q -p seawall-powercut --all-targets -- -D warnings
	$(CARGO) test --release --locked -q -p seawall-powercut
	$(CARGO) build --release --locked -q -p seawall-powercut
	target/release/seawall-powercut --rounds $(ROUNDS) $(POWERCUT_ARGS)

powercut-mutants: need-rust need-mkfs
	$(CARGO) build --release --locked -q -p seawall-powercut --features mutants
	target/release/seawall-powercut --mutants --rounds 200 $(POWERCUT_ARGS)

.PHONY: fuzz long cgroup-test miri nightly

# Fuzzes the readers of untrusted bytes, SECONDS for each target; starts from the inputs found earlier.
SECONDS_EACH = $(if $(filter command line environment,$(origin SECONDS)),$(SECONDS),60)
fuzz: need-rust
	scripts/fuzz $(SECONDS_EACH)

# A transaction of this many changes in a pool of 64 MiB: committed, rolled back, and rolled back after a
# crash, in bounded memory.
ROWS ?= 10000000
long: need-rust
	ROWS=$(ROWS) $(CARGO) test --release --locked -q -p seawall --test long -- --nocapture

# A pool of 90% of a memory cgroup: no swapping, and the process is not killed.
cgroup-test: need-rust
	scripts/cgroup-test

# The parts without I/O under Miri, which finds undefined behaviour and data races: the log's ring, and the
# locks with their interrupts. It is thousands of times slower than the machine.
MIRI_TESTS ?= log::ring::tests::groups log::ring::tests::a_cut log::ring::tests::promises txn::locks::tests::interrupts \
  txn::locks::tests::a txn::locks::tests::two_
miri: need-rust
	rustup toolchain install nightly --profile minimal --component miri,rust-src --no-self-update
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked -p seawall --lib --target-dir target/miri -- $(MIRI_TESTS)

# Tests that take too long for every change; stops at the first failure.
nightly: export SEAWALL_SKIPPED = $(CURDIR)/$(SKIPPED)
nightly: need-rust
	@mkdir -p target && : >$(SKIPPED)
	$(MAKE) crash SEEDS=10000 FROM=$(DATE_SEED)
	$(MAKE) mutants
	$(MAKE) kill9 ROUNDS=100
	$(MAKE) backups ROUNDS=20
	$(MAKE) fuzz SECONDS=60
	$(MAKE) long ROWS=10000000
	$(MAKE) miri
	$(MAKE) cgroup-test
	$(MAKE) powercut ROUNDS=50
	$(MAKE) powercut-mutants
	$(MAKE) need-mariadb
	FROM=$(DATE_SEED) SEEDS=200 mariadb/test
	mariadb/suites
	mariadb/crash 20
	mariadb/crash-points
	mariadb/sessions 64 600
	mariadb/backup-test
	mariadb/migrate-test
	mariadb/scale/replicas
	mariadb/scale/semi-sync
	mariadb/scale/spider
	$(COUNT_SKIPPED)

# The lab's cells against fio on the same file; exits 1 when they differ by more than 10%.
compare-fio: need-rust
	@command -v fio >/dev/null || scripts/apt-install fio
	mkdir -p target/lab-scratch
	$(CARGO) run --release --locked -q -p seawall-lab --example compare_fio -- target/lab-scratch

# The goals: Seawall and the stores it is compared with, in one run. `bench` is the small variant, about 15
# minutes; `goals` takes an hour and a half, exits 1 when one falls short. GOALS_ARGS="--only '^commit'" and
# more.
GOALS_ARGS ?=
GOALS_PACKAGES = fio valgrind e2fsprogs
.PHONY: bench goals goals-build
bench: goals-build
	@# Exit code 1 means that a goal falls short; the small variant tolerates that.
	target/release/seawall bench goals --quick --out target/bench $(GOALS_ARGS) || [ $$? = 1 ]

goals: goals-build
	target/release/seawall bench goals --out target/goals $(GOALS_ARGS)

goals-build: test-peers
	@dpkg -s $(GOALS_PACKAGES) >/dev/null 2>&1 || scripts/apt-install $(GOALS_PACKAGES)
	$(CARGO) build --release --locked -p seawall-cli --features peers
	$(CARGO) build --release --locked -p seawall --example instructions
	@# The preceding build keeps the disk busy: sync first.
	sync

# What threads on different rows still share: cache lines that both write, mutexes, allocations. DETAIL=1
# names the functions.
.PHONY: contention
contention: need-rust
	@command -v valgrind >/dev/null || scripts/apt-install valgrind
	$(CARGO) build --release --locked -p seawall --features contention --example contention
	target/release/examples/contention

# Instructions of single operations, by callgrind; fails when an operation exceeds its limit.
.PHONY: instructions
instructions: need-rust
	@command -v valgrind >/dev/null || scripts/apt-install valgrind
	$(CARGO) build --release --locked -p seawall --example instructions
	target/release/examples/instructions

# The plugin for MariaDB (mariadb/README.md): build it, start a server with it, install it into the installed
# server, test it. The first time fetches a server and its headers, 180 MB. `mariadb-test` also runs MariaDB's own
# suites, half an hour; `make test` runs the quick tests.
.PHONY: mariadb mariadb-run mariadb-install mariadb-test need-mariadb
mariadb: need-mariadb
	mariadb/build
mariadb-run: need-mariadb
	mariadb/run
mariadb-install: need-mariadb
	mariadb/install
mariadb-test: need-mariadb
	FROM=$(COMMIT_SEED) mariadb/test
	MARIADB_SUITE=trixie FROM=$(COMMIT_SEED) mariadb/test
	mariadb/suites
	mariadb/crash 3
	ROUNDS=1 mariadb/backup-test
	mariadb/migrate-test
# Debian packages of the plugin and of the command-line tool, tried in a fresh chroot.
.PHONY: deb deb-test
deb: need-mariadb
	mariadb/deb
deb-test: need-mariadb
	mariadb/deb test
# Seawall beside InnoDB in one server: some rows in about ten minutes, and the whole table, which exits with 1 if a goal is
# missed. QUICK=1 make mariadb-goals takes an hour. MARIADB_GOALS_ARGS="--only tpcc" and more.
MARIADB_GOALS_ARGS ?=
.PHONY: mariadb-bench mariadb-goals
mariadb-bench: need-mariadb
	@# Exit code 1 means that a goal falls short; the short run tolerates that.
	QUICK=1 mariadb/goals --bench $(MARIADB_GOALS_ARGS) || [ $$? = 1 ]
mariadb-goals: need-mariadb
	mariadb/goals $(MARIADB_GOALS_ARGS)
need-mariadb: need-rust
	@command -v g++ >/dev/null || scripts/apt-install g++
	@for lib in libaio.so.1 liburing.so.2 libnuma.so.1 libncurses.so.6; do \
	  ldconfig -p | grep -q "$$lib" || missing=1; done; [ -z "$$missing" ] || scripts/apt-install libaio1 liburing2 libnuma1 libncurses6

need-rust: need-linker
	@command -v $(CARGO) >/dev/null || { \
	  echo 'Rust is missing. This line installs it:'; \
	  echo "  apt-get install -y rustup && rustup default stable    # Debian 13; on Debian 12: apt-get install -y cargo-web rustc-web"; \
	  exit 1; }
	@$(CARGO) fmt --version >/dev/null 2>&1 || rustup component add rustfmt || scripts/apt-install rustfmt-web
	@$(CARGO) clippy --version >/dev/null 2>&1 || rustup component add clippy || scripts/apt-install rust-web-clippy

need-peers: need-linker
	@{ command -v c++ && command -v pkg-config && pkg-config --exists liburing && ls /usr/lib/llvm-*/lib/libclang*.so*; } >/dev/null 2>&1 || \
	  scripts/apt-install g++ libclang-dev liburing-dev pkg-config

# Without root nothing can be mounted: then they are not needed.
need-mkfs:
	@[ "$$(id -u)" != 0 ] || { command -v mkfs.ext4 && command -v mkfs.xfs && command -v mkfs.btrfs; } >/dev/null || \
	  scripts/apt-install e2fsprogs xfsprogs btrfs-progs || echo 'make: not all file systems can be made here'

need-linker:
	@command -v cc >/dev/null || scripts/apt-install gcc libc6-dev
