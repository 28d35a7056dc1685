# Thin names for the commands. `make` alone lists them.

# Schedules of the committer's threads, with other locks than the rest has.
SHUTTLE := cargo test --package stoa-quadstore --features shuttle --test shuttle --quiet

# Tests run with locks that count how often they are taken and waited for; `make long` runs them with those of a release.
METERS := --features stoa-server/lock-meters

DEMO_DB ?= demo/db
BIND ?= 127.0.0.1:7878
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release

.DEFAULT_GOAL := help
.PHONY: help build demo test clients ci long fuzz fmt lint doc portable rivals compare bench instructions instructions-accept

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-20s %s\n", $$1, $$2 }'

build: ## Build the release binary
	cargo build --release --package stoa-server
	@echo "built $(RELEASE)/stoa"

demo: build ## Load the bundled example, serve it, and print queries to try
	@$(RELEASE)/stoa load --db $(DEMO_DB) demo/sky.ttl
	@echo; cat demo/queries.md; echo
	@echo "Open http://$(BIND)/ and paste one of them. Ctrl-C ends the server."
	@$(RELEASE)/stoa serve --db $(DEMO_DB) --bind $(BIND)

test: ## Run all tests
	testsuite/timed/run --workspace $(METERS)
	$(SHUTTLE)

clients: ## A session of each client of others with a server of ours
	testsuite/clients/run

ci: ## Exactly what CI runs
	.ci/steps

long: ## Slow tests and longer random ones; before an issue is resolved
	STOA_LONG=1 cargo test --workspace --exclude stoa-fuzz --profile long --no-fail-fast --quiet
	STOA_LONG=1 $(SHUTTLE) --profile long

fuzz: ## Change inputs for some minutes, see CONTRIBUTING.md
	STOA_LONG=1 cargo test --release --package stoa-fuzz --test fuzz -- --test-threads 1 --nocapture

bench: ## Times of single kernels; ONLY=seek for those with that in their names
	cargo bench --package stoa-kernels --bench kernels -- $(ONLY)

instructions: ## Compare the instructions that ten small queries and two updates take with the kept counts
	bench/instructions/run

instructions-accept: ## Keep the counts of now
	bench/instructions/run --accept

fmt: ## Format the code
	cargo fmt --all

lint: ## Clippy and formatting, as CI checks them
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(METERS) --quiet -- -D warnings
	cargo clippy --package stoa-storage --all-targets --quiet -- -D warnings
	cargo clippy --package stoa-quadstore --features shuttle --test shuttle --quiet -- -D warnings

doc: ## Build the documentation of all crates
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

portable: ## Build a release binary for any x86-64 processor
	RUSTFLAGS="-C target-cpu=x86-64" cargo build --release --package stoa-server

SCALE ?= 1m
RIVALS := $(or $(CARGO_TARGET_DIR),target)/rivals

rivals: ## Install the engines that Stoa is compared with
	@failed=0; for name in virtuoso oxigraph jena blazegraph; do \
	  echo "installing $$name"; \
	  bench/rivals/$$name.sh install $(RIVALS)/$$name && bench/rivals/$$name.sh version $(RIVALS)/$$name || failed=1; \
	done; exit $$failed

compare: build ## Compare with other engines: make compare SCALE=1m, 10m or 100m
	cargo build --release --package stoa-bench
	bench/compare.sh $(SCALE)
