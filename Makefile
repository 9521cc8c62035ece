# Two commands matter: `make run` measures the disk under this checkout, `make test` proves the code.
SHELL := /bin/bash
CARGO ?= cargo
# Where `make run` measures and what else it passes on, e.g. make run LAB=/srv/db LAB_ARGS=--full
LAB ?= target/lab-scratch
LAB_ARGS ?=

.PHONY: run test lint fmt docs msrv compare-fio need-rust need-linker

run: need-rust
	$(CARGO) build --release --locked -p seawall-cli
	mkdir -p $(LAB) target/lab
	@# The build just before keeps the disk busy: let it settle, and rather mark a disturbed cell than refuse.
	sync
	target/release/seawall lab $(LAB) --out target/lab --force $(LAB_ARGS)

test: need-rust lint
	$(CARGO) test --workspace --locked
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --locked --no-deps --quiet
	scripts/msrv

lint: need-rust
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

fmt: need-rust
	$(CARGO) fmt --all

docs: need-rust
	$(CARGO) doc --workspace --locked --no-deps --open

# The oldest Rust that may build this, as stated in Cargo.toml.
msrv: need-rust
	scripts/msrv

# The lab's cells against fio on the same file; exits 1 when they differ by more than 10%.
compare-fio: need-rust
	@command -v fio >/dev/null || scripts/apt-install fio
	mkdir -p target/lab-scratch
	$(CARGO) run --release --locked -q -p seawall-lab --example compare_fio -- target/lab-scratch

need-rust: need-linker
	@command -v $(CARGO) >/dev/null || { \
	  echo 'Rust is missing. This line installs it:'; \
	  echo "  apt-get install -y rustup && rustup default stable    # Debian 13; on Debian 12: apt-get install -y cargo-web rustc-web"; \
	  exit 1; }
	@$(CARGO) fmt --version >/dev/null 2>&1 || rustup component add rustfmt || scripts/apt-install rustfmt-web
	@$(CARGO) clippy --version >/dev/null 2>&1 || rustup component add clippy || scripts/apt-install rust-web-clippy

need-linker:
	@command -v cc >/dev/null || scripts/apt-install gcc libc6-dev
