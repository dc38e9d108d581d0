# The commands of this repository. `make help` lists them; CI (.ci/run) runs the same ones.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# No timeout: bin/testrun ends a run in which nothing moves. No test cache: it does not see the servers a result depends on.
# No vet: make lint vets.
GO_TEST := bin/testrun -count=1 -vet=off -p 2 -parallel 4
# One PostgreSQL, one RabbitMQ and one Kafka for all packages of a run.
SERVE   := bin/serve
STEP    := scripts/step.sh
# Without a tag the version is the one that go build finds in the checkout.
VERSION := $(shell git describe --tags --match='v*' --dirty 2>/dev/null)
# go build finds these two in the checkout as well, but not with GOFLAGS=-buildvcs=false.
COMMIT := $(shell git describe --always --abbrev=40 --exclude='*' --dirty 2>/dev/null)
DATE := $(shell git show -s --format=%cI HEAD 2>/dev/null)

# The longest packages come first: last they would run alone.
FIRST := ./test/fault ./test/cli ./internal/replication
# "work" is all packages of all modules of go.work, where ./... stops at the folder of another module.
# What is in the binary, or in a service that writes or consumes.
PRODUCT = go list work | grep -E '^[^/]*/[^/]*/[^/]*/(internal|cmd|outbox|inbox)(/|$$)' | grep -v /internal/devenv
# Of that, test-race leaves out what starts hardly a goroutine: ./internal/replication races those of repair, ./internal/sink/kafka
# those of kafkaclient, test/cli plays the commands. Of two packages it races the tests that start some.
RACED   = $(PRODUCT) | grep -vE '/internal/((config|debezium|decode|event|guard|kafkaclient|migrate|printable|wiring)(/|$$)|(cli/command|cli/operate|dlq|lazy|ops|ops/console|ops/metrics|relay/inflight|relay/order|replication/(check|repair|schema|setup|slot)|retention|secretfile|sent|sink/cloudevents|sink/sinktest/spool)$$)'
CALM        := ./internal/dlq ./internal/retention ./internal/replication/schema ./internal/replication/setup # on the same PostgreSQL
RACED_TESTS := ^Test(AWaitingReadEnds|ConcurrentUse|Errors|IsSilent|ReadAndWrite|TryWrite|MetadataDoesNotStarveIds|PoolHangsUp|RoundTripBreaks|Tail.*|Watch)$$
# What test-race does not run of the pure tests, so that make test-all has each of them once.
UNRACED = go list $(QUICK) | grep -vxFf <($(RACED)) | tr '\n' ' '
OTHERS  = go list -e -tags '$(TAGS)' work | grep -vxFf <($(PRODUCT)) | grep -vxFf <(go list $(QUICK)) | grep -vE '/test/(install|soak)$$'
.PHONY: tested-packages
tested-packages: # of make test-all, for TestEveryPackageIsTested
	@go list $(QUICK) $(CALM); $(RACED); $(OTHERS)
# What differs between PostgreSQL versions. scripts/postgres.sh fetches them. test-race is on the newest.
PG_PACKAGES ?= ./internal/replication ./internal/replication/schema
PG_VERSIONS := 14 15 16 17 18
PG_OLDEST   := $(firstword $(PG_VERSIONS))
PG_NEWEST   := $(lastword $(PG_VERSIONS))
# What differs between the versions of a broker. scripts/rabbitmq.sh and scripts/kafka.sh fetch those that are not installed. Tests run on
# the newest Kafka, and on the RabbitMQ that is installed or that RABBITMQ names.
RABBITMQ_PACKAGES ?= ./internal/sink/rabbit ./inbox/test/rabbit ./test/inbox/faults ./test/fault ./test/cli
RABBITMQ_VERSIONS := 3.10 4
RABBITMQ_NEWEST   := $(lastword $(RABBITMQ_VERSIONS))
KAFKA_PACKAGES    ?= ./internal/kafkaclient/... ./internal/sink/kafka ./inbox/test/kafka ./test/inbox/faults ./test/fault
KAFKA_VERSIONS    := 3.9

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-19s %s\n", $$1, $$2}'

# The broker of demo and shop: rabbitmq or kafka. They install that one alone.
SINK ?= rabbitmq

.PHONY: demo
demo: deps-$(SINK) ## PostgreSQL, the relay and a broker through poison, an outage and a mistake (SINK=kafka: Kafka; WORST=1: a full disk, a promotion and a lost slot, too; KEEP=1 leaves it running)
	@if [ -n '$(filter-out 0,$(WORST))' ] && ! ls /usr/lib/postgresql/1[7-9]/bin/initdb >/dev/null 2>&1; then scripts/postgres.sh 17 >/dev/null; fi
	@echo 'building the demo (the first time this takes a minute or two) ...'
	@KEEP=$(KEEP) WORST=$(WORST) go run ./internal/devenv/demo -sink $(SINK)

.PHONY: shop
shop: deps-$(SINK) ## order-service and notification-service with the relay between: kills, a broker restart, poison, retries, a verdict (SINK=kafka: Kafka; KEEP=1 leaves it running)
	@echo 'building the shop (the first time this takes a minute or two) ...'
	@KEEP=$(KEEP) go run ./tools/shop -sink $(SINK)

.PHONY: pictures
pictures: ## draw docs/img again: the dashboards and status --watch of a relay through an outage, six minutes
	@scripts/deps.sh rabbitmq prometheus
	@go run ./tools/pictures

# Tests that need no server. TestQuickNeedsNoServer in test/docs reads this list.
QUICK := ./internal/event ./internal/decode ./internal/config/... ./internal/debezium/... ./internal/guard ./internal/migrate/... \
	./internal/ops/... ./internal/printable ./internal/relay/... ./internal/secretfile ./internal/retry ./internal/wiring ./internal/cli/... \
	./internal/lazy ./internal/sent ./internal/sink ./internal/sink/cloudevents ./internal/sink/sinktest/spool ./internal/sink/stdout \
	./internal/replication/check ./internal/replication/repair \
	./internal/replication/session ./internal/replication/slot ./internal/replication/source \
	./internal/kafkaclient/... \
	./internal/sink/rabbit/conn ./inbox/internal/... ./test/arch ./test/docs ./tools/site

.PHONY: quick
quick: bin/testrun ## pure tests, which need no server: a minute or two the first time, then under 30 s
	@$(GO_TEST) -tags '$(TAGS)' $(QUICK)

# Three tiers. A test's tier is the build tag of its file: none, testall or nightly (CONTRIBUTING.md). All go through this
# target: what needs no server first, then the servers, then the PARTS of the tier, each of them whatever becomes of the others.
DEPS  := deps
PARTS := test-servers

.PHONY: test
ifdef PKG
test: bin/testrun
	@scripts/package.sh '$(TAGS)' $(PKG)
else
test: ## for everybody, after each change: 4 minutes on two cores (PKG=./internal/sink/rabbit: this package, with the servers that it needs)
	@{ $(MAKE) --no-print-directory quick && $(MAKE) --no-print-directory $(DEPS) bin/serve && \
		$(if $(RABBITMQ),root=$$(scripts/rabbitmq.sh $(RABBITMQ)) && CDC_RELAY_TEST_RABBITMQ_ROOT=$$root) \
		$(SERVE) $(MAKE) -k --no-print-directory $(PARTS); } | scripts/total.sh
endif

.PHONY: test-all
test-all: ## what CI runs, 19 minutes: make test with the race detector, lint of the product, the other faults, PostgreSQL 14 and 18, planted bugs
	@$(STEP) $@ $(MAKE) --no-print-directory test TAGS=testall DEPS=deps-all RABBITMQ=$(RABBITMQ_NEWEST) QUICK="$$($(UNRACED))" \
		PARTS=test-side-by-side

# The speed is compared when the tests' servers have ended.
.PHONY: test-nightly
test-nightly: ## before a release, two hours: everything, all PostgreSQL versions, the real Debezium, a soak, the last release's speed
	@red=0; $(STEP) $@ $(MAKE) --no-print-directory test TAGS=testall,nightly DEPS=deps-nightly RABBITMQ=$(RABBITMQ_NEWEST) SOAK=10m \
		PARTS='lint platforms test-tools test-modules test-release test-install test-plain test-race $(patsubst %,test-pg%,$(filter-out $(PG_NEWEST),$(PG_VERSIONS))) \
		$(patsubst %,test-rabbitmq%,$(filter-out $(RABBITMQ_NEWEST),$(RABBITMQ_VERSIONS))) $(KAFKA_VERSIONS:%=test-kafka%) test-mutants soak-faults' || red=1; \
	$(MAKE) --no-print-directory bench-compare || red=1; exit $$red

# The parts. By themselves they start servers of their own, and run the first tier: make test-race TAGS=testall.

.PHONY: test-servers test-plain test-race
test-servers: bin/testrun
	@echo "== $@"; $(GO_TEST) $(FIRST) $$(go list work | grep -vxFf <(go list $(QUICK)))
test-plain: bin/testrun
	@echo "== $@"; $(GO_TEST) -tags '$(TAGS)' ./test/fault ./test/cli ./test/debezium ./internal/devenv/demo $$($(OTHERS))
# Tests mostly wait: two lists of them, which take about the same time, are made side by side. What only computes has what they
# leave of the processors.
.PHONY: test-side-by-side lint-and-tools
test-side-by-side: bin/testrun
	@scripts/beside.sh 'test-plain test-mutants' 'test-race test-oldest' lint-and-tools
lint-and-tools:
	@nice -n 10 $(MAKE) -k --no-print-directory lint-product test-tools
test-race: bin/testrun bin/serve ## the packages of relay, outbox and inbox under the race detector, on the newest PostgreSQL
	@echo "== $@"; red=0; $(GO_TEST) -race -run '$(RACED_TESTS)' ./internal/relay/order ./internal/kafkaclient ./internal/kafkaclient/socket || red=1; \
		export CDC_RELAY_TEST_POSTGRES= CDC_RELAY_TEST_POSTGRES_BIN=$$(scripts/postgres.sh $(PG_NEWEST)); \
		$(SERVE) $(GO_TEST) -race -tags '$(TAGS)' ./internal/replication ./internal/sink/kafka ./internal/sink/rabbit ./inbox/test/kafka $$($(RACED)) || red=1; \
		$(SERVE) $(GO_TEST) -tags '$(TAGS)' $(CALM) || red=1; exit $$red

# The shared server is of another version: the package starts its own.
.PHONY: $(PG_VERSIONS:%=test-pg%)
$(PG_VERSIONS:%=test-pg%): test-pg%: bin/testrun
	@echo "== $@"; bin=$$(scripts/postgres.sh $*); env -u CDC_RELAY_TEST_POSTGRES CDC_RELAY_TEST_POSTGRES_BIN=$$bin \
		$(GO_TEST) -tags '$(TAGS)' $(if $(SKIP),-skip '$(SKIP)') $(PG_PACKAGES)

# Servers of this version in place of the run's.
.PHONY: $(RABBITMQ_VERSIONS:%=test-rabbitmq%) $(KAFKA_VERSIONS:%=test-kafka%)
$(RABBITMQ_VERSIONS:%=test-rabbitmq%): test-rabbitmq%: bin/testrun bin/serve
	@echo "== $@"; root=$$(scripts/rabbitmq.sh $*); env CDC_RELAY_TEST_RABBITMQ= CDC_RELAY_TEST_RABBITMQ_ROOT=$$root \
		$(SERVE) $(GO_TEST) -tags '$(or $(TAGS),testall)' $(RABBITMQ_PACKAGES)
$(KAFKA_VERSIONS:%=test-kafka%): test-kafka%: bin/testrun bin/serve
	@echo "== $@"; dir=$$(scripts/kafka.sh $*); env -u CDC_RELAY_TEST_KAFKA_WAYS CDC_RELAY_TEST_KAFKA= CDC_RELAY_TEST_KAFKA_DIR=$$dir \
		$(SERVE) $(GO_TEST) -tags '$(or $(TAGS),testall)' $(KAFKA_PACKAGES)

.PHONY: test-oldest
test-oldest: override TAGS :=
# They ask the server nothing that no other test asks it. make test-nightly leaves none out.
test-oldest: SKIP := ^Test(Backfill|CheckNamesColumnsAndTypes|CleanStopsUnderLoad|Column(DroppedWhileRunning|ReplacedDuringARollout)|$\
	FirstStartCountsARowWhoseTransactionWasOpen|FlushLimitIsLeftToWhoRaisesTheEpoch|GapAcrossARestart|IdleOutboxMovesWithOtherTables|$\
	InitRefusesRowsThatNobodyAskedAbout|Leader(ReturnsAfterAnotherLed|ThatWasFencedStops)|MessageThatCannotBeRead|OrderOfDefaults|$\
	OtherPublishedTableIsLocked|PoolIsMadeAgainWhereTheStreamGoes|PublicationAlteredThereAndBack|Recover(BehindWhatWaits|CutOff)|$\
	RecoveredAsStreamed|RowFilter|RowThatCannotBeConverted|SilentServerIsLeft|Slot(AcceptedOnAnotherServer|DroppedWhileDown|$\
	HeldForAMoment|LostBeforeTheEpochIsRaised|MovedByAProgramThatLeaves|Recreated|WithoutARecord)|StopBetweenCommitsThatAreAdjacent|$\
	WalsenderTerminated)$$
test-oldest: test-pg$(PG_OLDEST) ## the first tier on the oldest PostgreSQL, less what is the same on each

.PHONY: test-tools
test-tools: bin/testrun ## modules outside of go.work: deploy/ read as those who will run it read it, bin/testrun
	@echo "== $@"; red=0; for module in tools/deploycheck tools/testrun; do (cd $$module && GOWORK=off ../../bin/testrun -count=1 -tags "$(TAGS)" ./...) || red=1; done; exit $$red

.PHONY: test-modules
test-modules: ## what users get of a release: go install of the relay, a service that imports outbox, one that imports inbox
	@echo "== $@"; scripts/modules.sh

.PHONY: test-install
test-install: deps-install bin/testrun ## install the packages, the archive, the image and the modules of a release where nothing else is, and run them; with systemd, and on arm64 (DIST=dist: the release that is there)
	@[ -n '$(DIST)' ] || $(MAKE) --no-print-directory release VERSION=v$(NEWEST)
	@echo "== $@"; CDC_RELAY_TEST_DIST=$(abspath $(or $(DIST),dist)) $(GO_TEST) -tags nightly ./test/install
# The version that CHANGELOG.md describes last.
NEWEST = $(shell sed -n '/^## \[[0-9]/{s/^## \[\([^]]*\)\].*/\1/p;q}' CHANGELOG.md)
.PHONY: test-release
test-release: bin/testrun ## a release twice, in two folders and two environments: the same bytes; the licences of what it is made of
	@echo "== $@"; (cd tools/release && GOWORK=off ../../bin/testrun -count=1 ./...) && scripts/release-twice.sh && scripts/supply-chain.sh licences

.PHONY: mutants test-mutants
mutants: deps bin/serve ## plant each bug of mutants/: its named test must turn red
	@$(SERVE) $(MAKE) --no-print-directory test-mutants
test-mutants:
	@$(STEP) $@ go run ./mutants

.PHONY: serve
serve: deps bin/serve ## start PostgreSQL, RabbitMQ and Kafka for tests by hand, and print the variables to export
	@$(SERVE)

.PHONY: bin/serve bin/testrun
bin/serve:
	@[ -e $@ ] || echo 'compiling $@ ...'; go build -o $@ ./internal/devenv/serve
bin/testrun:
	@[ -e $@ ] || echo 'compiling $@ ...'; GOWORK=off go build -C tools/testrun -o ../../$@ .

# bench is a module of its own. ROWS selects by a regular expression of broker/report/row: kafka/main, /inbox/live.
BENCH = $(STEP) $@ go run -C bench .

.PHONY: bench bench-debezium bench-inbox bench-leader-change
bench: $(if $(ROWS),deps-rabbitmq deps-kafka,deps-debezium) ## measure and write all tables of README.md and docs/performance.md, an hour (ROWS=kafka/main: only these)
	@$(BENCH) -only '$(ROWS)'
bench-debezium: deps-debezium ## of these: Debezium Server beside the relay on both brokers, half an hour
	@$(BENCH) -only /debezium/
bench-inbox: deps-rabbitmq deps-kafka ## of these: the way to the effect's COMMIT, and how fast the inbox empties a queue, eight minutes
	@$(BENCH) -only /inbox/
bench-leader-change: deps-rabbitmq deps-kafka ## of these: how long a standby takes when the leader dies or is cut off, three minutes
	@$(BENCH) -only /leader-change/

# BASE is the last release. Until there is one, it is the commit whose speed is the measure.
BASE ?= $(or $(shell git describe --tags --match='v*' --abbrev=0 HEAD^ 2>/dev/null),903aef27)
.PHONY: bench-compare
bench-compare: deps-rabbitmq deps-kafka ## the relay of BASE=commit and this one in turns, under 30 minutes: CPU per event, rates, latency, memory, start (ROWS=kafka/live: only these)
	@$(BENCH) -base '$(BASE)' -only '$(ROWS)' -tabs '$(or $(TABS),0)'

.PHONY: soak
soak: deps soak-faults ## random faults for an hour, none for another (SOAK=10m sets the time), then a million seeds of test/sim (SEEDS=1000 sets how many)
	@$(STEP) $@-seeds go test -count=1 -timeout 0 -v -run '^TestSeeds$$' ./test/sim -args -seeds $(or $(SEEDS),1000000) -first $$(((RANDOM << 15 | RANDOM) * 1000000 + 1))

.PHONY: soak-faults
soak-faults:
	@$(STEP) $@ go test -tags nightly -count=1 -timeout 0 -v ./test/soak -args -for $(or $(SOAK),1h)

.PHONY: golden-debezium
golden-debezium: deps-debezium ## have the real Debezium make the golden records of test/debezium again, five minutes
	@go test -tags nightly -count=1 -timeout 0 -v -run '^TestGolden$$' ./test/long/debezium -args -rewrite

.PHONY: lint
lint: ## vet, golangci-lint (tools/lint pins it), formatting
	@$(STEP) $@ scripts/lint.sh

.PHONY: lint-product
lint-product:
	@$(STEP) $@ scripts/lint.sh product

.PHONY: platforms
platforms: ## build the relay for macOS, and the packages for services for Windows, too
	@CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build -o /dev/null ./cmd/cdc-relay
	@CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build ./outbox/... ./inbox/...
	@CGO_ENABLED=0 GOOS=windows go build ./outbox/... ./inbox/...

.PHONY: steady
steady: ## make test in 12 fresh clones of HEAD, half of them on a busy machine (RUNS=4 sets how many): which tests are red, and why
	@scripts/steady.sh $(or $(RUNS),12)

.PHONY: docs-site
docs-site: ## make the documentation site in dist/site, of the pages as they are; a dead link fails
	@$(STEP) $@ scripts/site.sh dist/site

.PHONY: fmt
fmt: ## format the code as make lint wants it
	@scripts/lint.sh fmt

.PHONY: build
build: ## build bin/cdc-relay
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)' -o bin/cdc-relay ./cmd/cdc-relay

.PHONY: release release-pins supply-chain licences notices
release: ## make the files of VERSION=v0.1.0 in dist/: archives, deb, rpm, image, checksums, lists of modules; publishes nothing
	@scripts/release.sh '$(VERSION)'
release-pins: ## pin images of deploy/ and actions of .github/ to what their registries give now (needs docker and the network)
	@scripts/pins.sh
supply-chain: ## licences, and govulncheck, which asks vuln.go.dev
	@scripts/supply-chain.sh
licences: ## each module that the relay and the shop's services are built of has a licence that is allowed
	@scripts/supply-chain.sh licences
notices: ## print the licences of all that the binary is built of, as the image has them
	@scripts/notices.sh ./cmd/cdc-relay

.PHONY: deps
deps: ## install what demo and test need (PostgreSQL, RabbitMQ, Java and Kafka, Prometheus, as root on Debian; no Debezium), start nothing
	@scripts/deps.sh rabbitmq kafka pgbouncer prometheus systemd plugins
	@scripts/kafka.sh

.PHONY: deps-rabbitmq deps-kafka deps-debezium deps-install
deps-rabbitmq:
	@scripts/deps.sh rabbitmq
deps-kafka:
	@scripts/deps.sh kafka
	@scripts/kafka.sh
deps-debezium: deps-kafka
	@scripts/deps.sh rabbitmq debezium plugins
	@scripts/debezium.sh
deps-install: deps-rabbitmq
	@scripts/deps.sh install
deps-%:
	@echo 'make: SINK is rabbitmq or kafka, not "$*"' >&2; exit 2

.PHONY: deps-all
deps-all: ## deps, and what test-all needs besides: a C compiler, node, PostgreSQL 14, 17 and 18, RabbitMQ 4
	@scripts/deps.sh all
	@scripts/kafka.sh
	@scripts/rabbitmq.sh $(RABBITMQ_NEWEST) >/dev/null
	@for version in 14 17 18; do scripts/postgres.sh $$version >/dev/null; done

.PHONY: deps-nightly
deps-nightly: deps-all deps-debezium deps-install
	@for version in $(PG_VERSIONS); do scripts/postgres.sh $$version >/dev/null; done
	@for version in $(RABBITMQ_VERSIONS); do scripts/rabbitmq.sh $$version >/dev/null; done
	@for version in $(KAFKA_VERSIONS); do scripts/kafka.sh $$version >/dev/null; done
	@scripts/deps.sh upgrade browser
	@scripts/axe.sh >/dev/null
	@scripts/site.sh fetch
	@for version in 17 18; do scripts/pg-upgrade.sh $$version >/dev/null; done
