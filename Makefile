# The commands of this repository. `make help` lists them; CI (.ci/run) runs the same ones.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Two packages at a time: those that need servers start their own, and a small machine has two cores.
# -count=1: a result depends on servers that the test cache does not see, so a cached one says nothing.
# -timeout is per package and only a last resort; every wait inside a test has its own bound.
GO_TEST  := go run ./tools/testrun -p 2 -count=1 -timeout 20m
# What differs between PostgreSQL versions is tested on each of them.
PG_PACKAGES ?= ./internal/replication
# Those that test-all adds to the system's, which on Debian 12 is 15. scripts/postgres.sh fetches them.
PG_VERSIONS := 14 16 17 18
TEST_PG     := $(PG_VERSIONS:%=test-pg%)
STEP     := scripts/step.sh
# Without a tag the version is the one that go build finds in the checkout.
VERSION  := $(shell git describe --tags --dirty 2>/dev/null)

# Everything but test/long and test/soak, which take minutes and belong to test-all. The longest comes first: last it would run alone.
PACKAGES  = ./test/fault ./test/cli $$(go list ./... | grep -vE '/test/((long|soak)(/|$$)|(fault|cli)$$)')

# What is in the binary.
RACE_PACKAGES = $$(go list ./internal/... ./cmd/... | grep -v /internal/devenv)

# What test-all tests without the race detector; test-pg14 and its like test replication so, and mutants the rest in parts. The
# longest comes first.
PLAIN_PACKAGES = ./test/fault ./test/cli $$(go list ./... | grep -vE '/test/((long|soak)(/|$$)|(fault|cli)$$)|/cmd/|/internal/' && go list ./internal/devenv/...)

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# The broker of demo and bench: rabbitmq or kafka. They install that one alone.
SINK ?= rabbitmq

.PHONY: demo
demo: deps-$(SINK) ## PostgreSQL, the relay and a broker through poison, an outage and a mistake (SINK=kafka: Kafka; KEEP=1 leaves it running)
	@echo 'building the demo (the first time this takes a minute or two) ...'
	@KEEP=$(KEEP) go run ./internal/devenv/demo -sink $(SINK)

.PHONY: test
test: deps ## unit and fault tests on real servers: PostgreSQL, RabbitMQ and Kafka
	@{ red=0; $(MAKE) --no-print-directory test-deploy || red=1; echo "== $@"; $(GO_TEST) $(PACKAGES) || red=1; exit $$red; } | scripts/total.sh

.PHONY: test-deploy
test-deploy: deps ## of make test: what is in deploy/, read as those who will run it read it (tools/deploycheck and tools/dashboards, modules of their own)
	@echo "== $@"; go build -o bin/testrun ./tools/testrun; red=0; for module in deploycheck dashboards; do (cd tools/$$module && ../../bin/testrun -count=1 -timeout 20m ./...) || red=1; done; exit $$red

.PHONY: test-all
# In less time: of TestKilledInTheSiding and TestStoppedInTheSiding what test/fault plays is enough there.
test-all: deps-all ## everything CI runs: lint, all tests (the relay's own with -race), PostgreSQL 14, 16, 17 and 18, mutants
	@CDC_RELAY_TEST_SEEDS=2 LONG='-skip InTheSiding' $(STEP) test-all $(MAKE) -k --no-print-directory MUTANTS=-green lint test-deploy test-plain test-race test-slow mutants | scripts/total.sh

.PHONY: test-plain
test-plain: deps ## of make test the part that test-all does not leave to test-race
	@echo "== $@"; $(GO_TEST) -parallel 3 $(PLAIN_PACKAGES)

.PHONY: test-race
test-race: deps ## tests of the relay's own packages under the race detector
	@echo "== $@"; CDC_RELAY_TEST_RACE=1 $(GO_TEST) -race $(RACE_PACKAGES)

.PHONY: test-long
test-long: deps deps-debezium ## the tests that take minutes (test/long)
	@echo "== $@"; $(GO_TEST) -timeout 40m $(LONG) ./test/long/... ./test/soak

.PHONY: test-slow
test-slow: deps ## test-long, and at the same time PostgreSQL 14, 16, 17 and 18 one after the other: these tests mostly wait
	@red=0; $(MAKE) --no-print-directory test-long & long=$$!; $(MAKE) -k --no-print-directory $(TEST_PG) || red=1; wait $$long || red=1; exit $$red

.PHONY: $(TEST_PG)
$(TEST_PG): test-pg%: deps
	@echo "== $@"; bin=$$(scripts/postgres.sh $*); CDC_RELAY_TEST_POSTGRES_BIN=$$bin $(GO_TEST) $(PG_PACKAGES)

.PHONY: mutants
mutants: deps ## plant each bug of mutants/ in a copy: its named test must turn red
	@$(STEP) $@ go run ./mutants $(MUTANTS)

.PHONY: bench
bench: deps-$(SINK) ## the main benchmark table, under 25 minutes (SINK=kafka: that of Kafka)
	@$(STEP) $@ go run ./bench -sink $(SINK)

.PHONY: bench-siding
bench-siding: deps-rabbitmq ## the benchmark of the siding on RabbitMQ, a quarter of an hour
	@$(STEP) $@ go run ./bench -only ^siding- -name rabbitmq-siding

.PHONY: bench-takeover
bench-takeover: deps-$(SINK) ## how long a standby takes when the leader dies or is cut off, a minute or two (SINK=kafka, too)
	@$(STEP) $@ go run ./bench -sink $(SINK) -only ^takeover$$ -name $(SINK)-takeover

# Both, whatever becomes of the first. A red one is red.
.PHONY: bench-debezium
bench-debezium: deps-debezium ## Debezium Server beside the relay on RabbitMQ and on Kafka, under 25 minutes: the README's table
	@red=0; for sink in rabbitmq kafka; do $(STEP) $@-$$sink go run ./bench -debezium -sink $$sink || red=1; done; exit $$red

.PHONY: bench-full
bench-full: deps-$(SINK) ## every cell of the benchmark, hours (SINK=kafka: of that of Kafka)
	@$(STEP) $@ go run ./bench -sink $(SINK) -full

.PHONY: soak
soak: deps ## a million seeds of test/sim, then random faults for an hour and none for another, not CI (SEEDS=1000 sets how many, SOAK=10m the time)
	@$(STEP) $@-seeds go test -count=1 -timeout 0 -v -run '^TestSeeds$$' ./test/sim -args -seeds $(or $(SEEDS),1000000) -first $$(((RANDOM << 15 | RANDOM) * 1000000 + 1))
	@$(STEP) $@ go test -count=1 -timeout 0 -v ./test/soak -args -for $(or $(SOAK),1h)

.PHONY: golden-debezium
golden-debezium: deps-debezium ## have the real Debezium make the golden records of test/debezium anew, five minutes
	@go test -count=1 -timeout 40m -v -run '^TestGolden$$' ./test/long/debezium -args -rewrite

.PHONY: dashboards
dashboards: deps ## draw docs/img/*.png anew: what Prometheus answers to the queries of deploy/grafana while relay and broker are put through faults
	@answers=$$(mktemp); trap 'rm -f "$$answers"' EXIT; go test -count=1 -timeout 20m -run '^TestPanels$$' ./test/dashboards -args -pace 15s -record "$$answers"; \
	cd tools/dashboards && go run . "$$answers" ../../docs/img ../../deploy/grafana/*.json

.PHONY: lint
lint: ## vet, golangci-lint (tools/lint pins it), formatting
	@$(STEP) $@ scripts/lint.sh

.PHONY: fmt
fmt: ## format the code as make lint wants it
	@scripts/lint.sh fmt

.PHONY: build
build: ## build bin/cdc-relay
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/cdc-relay ./cmd/cdc-relay

.PHONY: deps
deps: ## install what demo and test need (PostgreSQL, RabbitMQ, Java and Kafka, Prometheus, as root on Debian; no Debezium), start nothing
	@scripts/deps.sh rabbitmq kafka pgbouncer prometheus systemd plugins
	@scripts/kafka.sh

.PHONY: deps-rabbitmq deps-kafka deps-debezium
deps-rabbitmq:
	@scripts/deps.sh rabbitmq
deps-kafka:
	@scripts/deps.sh kafka
	@scripts/kafka.sh
deps-debezium: deps-kafka
	@scripts/deps.sh rabbitmq debezium plugins
	@scripts/debezium.sh
deps-%:
	@echo 'make: SINK is rabbitmq or kafka, not "$*"' >&2; exit 2

.PHONY: deps-all
deps-all: ## deps, and what test-all needs besides: a C compiler, node, PostgreSQL 14, 16, 17 and 18, Debezium
	@scripts/deps.sh all
	@scripts/kafka.sh
	@scripts/debezium.sh
	@for version in $(PG_VERSIONS); do scripts/postgres.sh $$version >/dev/null; done
