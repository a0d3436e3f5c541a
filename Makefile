# Every target covers all modules: this one and the modules nested in it. The module tools has no code
# of its own.
MODULES := $(filter-out ./tools,$(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path '*/testdata/*')))

ROOT := $(CURDIR)

# The number of cases that each random test tries in a soak.
SOAK_CHECKS ?= 5000

# The number of holders of slots and units that a soak kills. One in twenty of them is a process.
SOAK_KILLS ?= 10000

# How long a soak checks that no call fails because of load.
SOAK_LOAD ?= 5m

# How long a soak runs each fuzz target.
FUZZ_TIME ?= 1m

# The number of random cases under the race detector: enough to run all code, since more cases find no
# new races.
RACE_CHECKS ?= 20

GO_TEST := $(ROOT)/scripts/go-test

# Compiles packages and their tests on all cores; go-test would compile them one by one. With GOGC=300 the
# compiler needs a fifth less time and a third more memory (some 200 MB). The tests themselves run with Go's
# usual value.
COMPILE := GOGC=300 go list -export -test -f '{{""}}'

# The packages that have tests. Compiling the others with the race detector takes a minute and finds
# nothing.
TESTED := {{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}

# Packages that compute on one goroutine, in their tests too, and measure no time. They are tested
# first, on all cores at once, while most other packages have the machine to themselves. The race
# detector has nothing to find in them. make lint checks that none of them starts goroutines.
COMPUTING := docs gcra limit lua plan \
	internal/keys internal/model internal/option internal/redisurl internal/state internal/textbook \
	$(addprefix cmd/tierlimit/internal/,accesslog nasa study synthetic trace) serve/internal/config

# Packages with servers or goroutines whose tests mostly wait and measure no time. They too are tested
# as many at once as there are cores, with and without the race detector.
WAITING := breaker embedded httplimit livepage local local/ledger promlimit rulesfile tiertest \
	$(addprefix internal/,lease live outage redistest regularfile simulate standin wake) \
	$(addprefix serve/,cmd/tierlimit-serve internal/service internal/stats internal/statsd internal/xdsconfig) \
	cmd/tierlimit cmd/tierlimit/internal/page cmd/tierlimit/internal/replay

# The race detector has nothing to find in the benchmark: the code that runs concurrently there is the
# peers' and ours, and our own tests cover ours. Compiling the peers for it takes minutes. The outages
# of bench/outage have no peers. The examples on frameworks start no goroutines of their own, so the
# detector has nothing to find there either.
RACE_MODULES := $(filter-out ./bench ./examples/frameworks,$(MODULES)) ./bench/outage

# The race detector also skips these tests, which take long under it. Some compute on one goroutine.
# Others do with a whole day, or on another server, what a shorter test does with the same goroutines.
# Some network faults and played outages look the same to the library, and so do most algorithms,
# which Redis computes, the orders in which instances are replaced, and a fleet that grows instead.
# Examples are short forms of tests, and so are replays of a few lines, which test what the command prints.
# All of these run without the detector.
RACE_SKIP := ^Example \
	^TestLaws1And5And10Conformance$$/^(miniredis|standin)$$ \
	^TestLaws1And5And10Conformance$$/^on_a_server$$/^redis_without_a_library$$ \
	^TestLaw3JoinedHoldsAreAsIfAlone$$ \
	^TestLaws3And4And7FaultyNetworks$$//^requests_are_late$$ \
	^TestLaws3And4And7FaultyNetworks$$//^replies_are_late$$ \
	^TestLaws3And4And7FaultyNetworks$$//^1_kB_a_second$$ \
	^TestLaw11Outages$$/^(kill|most-cut-off|slow|random)$$ \
	^TestLaw3HoldsWithLostReplies$$/^(sliding-log|fixed-window)$$ \
	^TestLaw1SettledPlusHeldStaysWithinTheLimit$$/^(sliding-|fixed-window) \
	^TestLaw11InstancesAreReplacedWithoutRedis$$/^(even_traffic|the_heaviest_first) \
	^TestLaw11TwelveInstancesFromFourWithoutRedis$$ ^TestLaw13SlotsAreKeptUnderOverload$$ \
	^TestLaw11KeysAtTheirLimitUnderOverload$$ \
	^TestTheLastUnitsAreExact$$ ^TestLaw11NamesWithoutRulesHaveNoLosses$$ ^TestLaw8HoldsAreGivenBackToAKeyThatWasIdle$$ \
	^TestWaitersAskOncePerRelease$$ ^TestLaw7WaitersForSlotsOfManyKeysAskLessOften$$ \
	^TestLeastPrivilegeOnACluster$$ \
	^TestRequestsWithoutAKey$$ ^TestReplayLeavesOutTimesOfTheFarFuture$$ ^TestReplayUsersAndCosts$$ \
	^TestLogsReadDoubtfully$$ ^TestLogsWithoutBytes$$ ^TestNumbersInWords$$ ^TestSignals$$ \
	^TestPlanOnARealRedis$$ ^TestPlanOfWhatIsHeld$$ ^TestPlanEmbedded$$ ^TestReportOfTheBuiltInDay$$ \
	^TestReportOfEveryLoad$$ ^TestReportOfALoadOfCenturies$$ ^TestReportOfFewWrongDecisions$$ ^TestReplayDials$$ ^TestEveryAlgorithmGrantsQuietRequests$$ \
	^TestHeavyKeysSurviveAttackers$$ ^TestFieldsAreBounded$$ ^TestReadingIsBounded$$ \
	^TestServicesLinkNoTestOracle$$ ^TestVariablesOfErrors$$ ^TestMemoryOfReadingIsGivenBack$$ \
	^TestLargeMessages$$ ^TestOutputThatCannotBeWritten$$ ^TestReportThroughALink$$ ^TestLeastPrivilege$$
empty :=
space := $(empty) $(empty)
RACE_SKIP := $(subst $(space),|,$(strip $(RACE_SKIP)))

# The numbers of parallel tests of a package that run at once in the library's own module, without and with the
# race detector, because they mostly wait. Elsewhere scripts/go-test sets the number. Some tests of faults check how
# soon Redis decides again after a failover, and the race detector multiplies the use of the processors: with eight
# at once, the nodes of a Cluster were too slow for a test, once in six runs beside other work. In all packages, at
# most three Clusters are in use at once (internal/redistest).
AT_ONCE := $$(test "$$module" != . || echo -parallel 12)
RACE_AT_ONCE := $$(test "$$module" != . || echo -parallel 6)

# Sets the variable tested to the packages of a module that have tests and do not only compute. Sets
# waiting to the packages among them that mostly wait, and others to the rest.
OTHERS := tested=$$(go list -f "$(TESTED)" ./...); \
	tested=$$(echo "$$tested" | grep -vxE 'github.com/tierlimit/tierlimit/($(subst $(space),|,$(strip $(COMPUTING))))' || true); \
	waiting=$$(echo "$$tested" | grep -xE 'github.com/tierlimit/tierlimit/($(subst $(space),|,$(strip $(WAITING))))' || true); \
	others=$$(echo "$$tested" | grep -vxE 'github.com/tierlimit/tierlimit/($(subst $(space),|,$(strip $(WAITING))))' || true)

# Test as many packages at once as there are cores.
BESIDE := -p "$$(getconf _NPROCESSORS_ONLN)"

# $(call go_test,flags,flags of the others) compiles and tests the packages that OTHERS found.
go_test = test -z "$$tested" || $(COMPILE) $(filter -race,$(1)) $$tested; \
	test -z "$$waiting" || $(GO_TEST) $(BESIDE) $(1) $$waiting; \
	test -z "$$others" || $(GO_TEST) $(2) $(1) $$others

# $(call each,command,modules) runs the command in every module, or in the given modules, and stops at
# the first failure.
each = @set -e; for module in $(or $(2),$(MODULES)); do (set -x; cd $$module; $(1)); done

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Packages that make test leaves out because another target tests them.
ELSEWHERE ?=
computing = $(addprefix ./,$(filter-out $(ELSEWHERE),$(COMPUTING)))

.PHONY: test
test: redis ## run all tests; installs a Redis server if there is none
	$(if $(filter .,$(MODULES)),$(COMPILE) $(computing))
	$(if $(filter .,$(MODULES)),$(GO_TEST) $(BESIDE) -timeout 10m $(computing))
	$(call each,$(OTHERS); $(call go_test,-timeout 10m,$(AT_ONCE)))

.PHONY: race
race: redis ## run the tests in which the race detector may find something, with it
	$(call each,export RAPID_CHECKS=$(RACE_CHECKS); $(OTHERS); $(call go_test,-race -timeout 15m -skip '$(RACE_SKIP)',$(RACE_AT_ONCE)),$(RACE_MODULES))

.PHONY: soak
soak: redis ## run the tests on many random cases (SOAK_CHECKS=5000), kill holders (SOAK_KILLS=10000), call under random loads (SOAK_LOAD=5m), run each fuzz target for long (FUZZ_TIME=1m)
	RAPID_CHECKS=$(SOAK_CHECKS) go test -p 1 -count=1 -timeout 60m ./...
	cd faults && FAULTS_KILLS=$(SOAK_KILLS) go test -count=1 -timeout 30m -v -run '^TestLaw13(ProcessesAreKilledAndStopped|LimitersAreDropped)$$' .
	cd faults && FAULTS_LOAD=$(SOAK_LOAD) go test -count=1 -timeout 60m -v -run '^TestLaws6And7NoCallFailsForLoad$$' .
	$(call each,$(ROOT)/scripts/fuzz $(FUZZ_TIME))
	go -C bench/outage run . -scenario random -schedules 100 -window 2s

.PHONY: matrix
matrix: ## run the tests that need a server against other servers (Debian's, or SERVERS="PATH ...")
	scripts/server-matrix

.PHONY: pages
pages: redis staticcheck ## test the pages in Chromium, which must be installed; PAGES_OUT=DIR keeps pictures
	$(if $(PAGES_OUT),mkdir -p $(abspath $(PAGES_OUT)))
	cd pages && go vet -tags chromium ./... && $(ROOT)/bin/staticcheck -tags chromium ./...
	cd pages && PAGES_OUT=$(abspath $(PAGES_OUT)) go test -tags chromium -count=1 -timeout 5m ./...

.PHONY: lint
lint: staticcheck ## check format, go vet, staticcheck
	@unformatted=$$(gofmt -l .) || exit 1; test -z "$$unformatted" || { echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	@! grep -nE '^[[:space:]]*go |\.Go\(|AfterFunc\(|\.Parallel\(' $(addsuffix /*.go,$(COMPUTING)) || { echo "a package of COMPUTING in the Makefile starts goroutines: take it out of that list"; exit 1; }
	$(call each,go vet ./...)
	cd examples && go vet -tags monitoring ./observed
	cd serve && go vet -tags original,envoy .
	cd pages && go vet -tags chromium ./...
	$(call each,$(ROOT)/bin/staticcheck ./...)

.PHONY: build
build: ## build every package, command and example, keeping nothing
	$(call each,GOGC=300 go build -ldflags=-w -o /dev/null ./...)
	$(if $(filter .,$(MODULES)),GOGC=300 GOARCH=386 CGO_ENABLED=0 go build -o /dev/null ./...) # on 32-bit platforms constants may overflow

.PHONY: compile
compile: ## compile all packages and tests, without and with the race detector, so that nothing waits for it later
	$(call each,$(COMPILE) ./...)
	$(call each,$(OTHERS); test -z "$$tested" || $(COMPILE) -race $$tested,$(RACE_MODULES))

.PHONY: docs
docs: ## compile the snippets of the documentation and look that it names what there is, as make test does, too
	$(GO_TEST) -timeout 30m ./docs # .ci/run gives it a processor only when there is one to spare

.PHONY: consumer
consumer: ## release in a scratch clone, and import and install the release as users do
	scripts/check-release

.PHONY: tidy
tidy: ## run go mod tidy in every module
	scripts/tidy

.PHONY: monitoring
monitoring: redis ## check dashboard and alerts against a fleet and Prometheus, which must be installed
	cd docs/monitoring && promtool check rules alerts.yaml && promtool test rules alerts_test.yaml
	cd examples && go test -tags monitoring -count=1 -v -run TestMonitoring ./observed

.PHONY: bench
bench: redis ## run the benchmarks against other limiters
	go -C bench run .

.PHONY: redis
redis:
	@scripts/ensure-redis

.PHONY: staticcheck
staticcheck:
	@go build -C tools -o $(ROOT)/bin/staticcheck honnef.co/go/tools/cmd/staticcheck
