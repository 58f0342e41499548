# make help lists the targets. Only Go is needed to build; a JDK 17, mvn and apt-get are what fetches and runs the servers of demo and tests.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO        ?= go
FUZZTIME  ?= 20s
KILLS     ?= 200
ROUNDS    ?= 20
MINUTES   ?= 30
DELIVERY  ?= at-least-once
STORE     ?= mysql
TRANSACTIONS ?= 1000
PROMOTIONS ?= 50
ROWS      ?= 200000
DOCUMENTS ?= 100000
SEED      ?= 1
PAUSES    ?= 0
BENCH     ?= all
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT    ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS   := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# One way of compiling for all targets but race, so that what one of them has compiled serves the others.
export CGO_ENABLED := 0

# Tools are built once into the cache that also keeps the servers.
CACHE     := $(or $(OUTBOX_RELAY_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/outbox-relay)
LINT      := v2.15.0
LINTER    := $(CACHE)/tools/golangci-lint-$(LINT)

# Packages that start goroutines or are called by several.
RACE      ?= ./binlog ./checkpoint/... ./relay/... ./internal/sandbox/... ./internal/demo

.PHONY: help
help: ## List the targets
	@echo "Targets (settings in brackets):"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: build ## Show the relay at work: real MySQL, real Kafka, kill -9 in the middle, an account at the end
	@$(GO) run ./internal/demo -relay bin/outbox-relay

.PHONY: build
build: ## Build bin/outbox-relay, a static binary
	@$(GO) build -ldflags '$(LDFLAGS)' -o bin/outbox-relay ./cmd/outbox-relay

.PHONY: test
test: ## Run the unit and integration tests; the servers are fetched at the first run
	$(GO) test -p 2 -timeout 20m ./...

.PHONY: race
race: ## Run the packages with goroutines under the race detector [RACE="./relay/..."]
	CGO_ENABLED=1 $(GO) test -race -p 2 -timeout 30m $(RACE)

.PHONY: lint
lint: $(LINTER) ## Check formatting, go vet, golangci-lint and the table of imports
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(LINTER) run ./...
	$(GO) test -count=1 ./internal/imports

$(LINTER):
	@echo "building golangci-lint $(LINT) into $(@D) (once, takes minutes)"
	@mkdir -p $(@D)
	@GOBIN=$(@D)/build-$(LINT) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT)
	@mv $(@D)/build-$(LINT)/golangci-lint $@ && rmdir $(@D)/build-$(LINT)

.PHONY: fuzz
fuzz: ## Run each fuzz target for a while [FUZZTIME=20s]
	@for package in $$($(GO) list ./...); do \
	  dir=$$($(GO) list -f '{{.Dir}}' $$package); \
	  for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go 2>/dev/null | sed 's/^func //' | sort -u); do \
	    echo "$$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$package || exit 1; \
	  done; \
	done

.PHONY: crash
crash: ## Kill the relay at random moments under load and judge every row [KILLS=200 SEED=1 DELIVERY=exactly-once PAUSES=20]
	$(GO) run ./internal/e2e/cmd/campaign crash -kills $(KILLS) -seed $(SEED) -delivery $(DELIVERY) -pauses $(PAUSES)

.PHONY: faults
faults: ## Kill, freeze and cut off the servers under load and judge every row [ROUNDS=20 SEED=1]
	$(GO) run ./internal/e2e/cmd/campaign faults -rounds $(ROUNDS) -seed $(SEED)

.PHONY: snapshot
snapshot: ROWS = 5000000
snapshot: KILLS = 20
snapshot: ## Start by a snapshot of ROWS rows under load, kill the relay KILLS times amid it and judge every row [ROWS=5000000 KILLS=20 SEED=1 DELIVERY=exactly-once SERVERS=1]
	$(GO) run ./internal/e2e/cmd/campaign snapshot -rows $(ROWS) -kills $(KILLS) -rate 500 -seed $(SEED) -delivery $(DELIVERY) $(if $(SERVERS),-servers)

.PHONY: chaos
chaos: ## Disturb three brokers, MySQL, the network and the relay at random under load and judge every row [MINUTES=30 SEED=1 DELIVERY=exactly-once STANDBY=1]
	$(GO) run ./internal/e2e/cmd/campaign chaos -minutes $(MINUTES) -seed $(SEED) -delivery $(DELIVERY) $(if $(STANDBY),-standby)

.PHONY: handover
handover: ## Kill, freeze and cut off one of two relays at a time under load and judge every row and role [ROUNDS=100 SEED=1 DELIVERY=exactly-once STORE=kafka]
	$(GO) run ./internal/e2e/cmd/campaign handover -rounds $(if $(filter file,$(origin ROUNDS)),100,$(ROUNDS)) -seed $(SEED) -delivery $(DELIVERY) -store $(STORE)

.PHONY: shards
shards: ## Have one relay read many servers, one of which freezes and dies, and judge every row [SOURCES=20 SECONDS=60]
	$(GO) run ./internal/e2e/cmd/campaign shards -sources $(or $(SOURCES),20) -seconds $(or $(SECONDS),60) $(if $(MYSQL),-mysql $(MYSQL))

.PHONY: failover
failover: ## Move the primary between two servers, orderly and by kill -9, and judge every row [PROMOTIONS=50 SEED=1 MYSQL=8.0 READ_FROM=any]
	$(GO) run ./internal/e2e/cmd/campaign failover -promotions $(PROMOTIONS) -seed $(SEED) $(if $(MYSQL),-mysql $(MYSQL)) $(if $(filter any,$(READ_FROM)),-any)

.PHONY: freeze
freeze: ## Stop servers by SIGSTOP and stall links for up to a minute, a start far behind and an outage of Kafka, and judge every row [ROUNDS=50 SEED=1 OUTAGE=300 MYSQL=8.0]
	$(GO) run ./internal/e2e/cmd/campaign freeze -rounds $(if $(filter file,$(origin ROUNDS)),50,$(ROUNDS)) -seed $(SEED) -outage $(or $(OUTAGE),300)s $(if $(MYSQL),-mysql $(MYSQL))

.PHONY: letters
letters: ## Publish 10,000 rows with 100 of each kind of poison under each policy, and again after 20 kills
	LETTERS_OF_EACH=100 $(GO) test -count 1 -v -run 'EveryKindOfPoison|ParkedKeysArePublishedAgain' ./internal/e2e

.PHONY: xa
xa: ## Run XA transactions amid ends of the relay and of MySQL and judge every row [TRANSACTIONS=1000 SEED=1 MYSQL=8.0]
	$(GO) run ./internal/e2e/cmd/campaign xa -transactions $(TRANSACTIONS) -seed $(SEED) $(if $(MYSQL),-mysql $(MYSQL))

.PHONY: fidelity
fidelity: ## Compare random rows of random tables with what SELECT prints [ROWS=200000 DOCUMENTS=100000 SEED=1 MYSQL=8.0 METADATA=MINIMAL]
	$(GO) run ./internal/fidelity -rows $(ROWS) -documents $(DOCUMENTS) -seed $(SEED) $(if $(MYSQL),-mysql $(MYSQL)) $(if $(METADATA),-metadata $(METADATA))

.PHONY: bench
bench: ## Measure beside Debezium, a plain relay and the limits of reading and of publishing [BENCH=all, or drain-mixed, latency-500, memory and others; QUICK=1 BENCH_OUT=file.json]
	$(GO) run ./internal/bench $(if $(QUICK),-quick) $(if $(BENCH_OUT),-out $(abspath $(BENCH_OUT))) $(BENCH)

.PHONY: profile
profile: ## Renew cmd/outbox-relay/default.pgo, the profile by which the compiler optimizes the program
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	  for w in mixed single sparse large small partitions compressed; do $(GO) run ./internal/bench drain -workload $$w -only relay -rounds 3 -no-verify -cpuprofile "$$dir" || exit 1; done; \
	  $(GO) tool pprof -proto -output cmd/outbox-relay/default.pgo "$$dir"/*-[0-9].pprof

.PHONY: clean
clean: ## Remove what the build made; the cache of servers and tools stays
	rm -rf bin
