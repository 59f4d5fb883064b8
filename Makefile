# ovn-multinet. `make help` lists what there is.

export CGO_ENABLED ?= 0
GO      ?= go
CACHE   := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ovn-multinet
# The lab makes namespaces, which takes root; everything is built by who calls make.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo "sudo -E")
LINT    := $(GO) tool -modfile=hack/tools/go.mod
# The agent is 36 MB and not 57 without gRPC's trace pages, which keep half the program in the link by reflection.
TAGS    := grpcnotrace
# For `make test`: more flags for go test, such as FLAGS="-v -run TestMainJob", and which packages.
FLAGS   ?=
PKGS    ?= ./...
# For `make bench-compare`: the other revision, the folders and the number of turns.
BASE  ?= HEAD
BENCH ?= agentapi netmodel ovnport
COUNT ?= 6
# The report measures the programs as they are shipped.
MEASURE = OVN_MULTINET_BIN=$(CACHE)/bin/product OVN_MULTINET_COMMIT=$(shell git describe --always --dirty) \
	$(GO) test -tags bench -count=1 -timeout 120m -v -exec "$(AS_ROOT)"
# Most of a scenario is waiting, so some run at once, however few cores there are. A cluster takes about 35 of the 128 inotify
# instances that Linux gives a user.
LABS     ?= 3
CLUSTERS ?= 2
COMMA    := ,

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9.-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install with apt what is missing (the other commands do it themselves)
	@sh hack/setup.sh

.PHONY: build
build: ## Build the programs into the cache folder
	@$(GO) build -trimpath -tags $(TAGS) -ldflags="-s -w" -o $(CACHE)/bin/product/ ./cmd/...
	@ls -l $(CACHE)/bin/product

.PHONY: images
images: build ## Write the container images as OCI tars into the cache folder
	@$(GO) run ./images/mkimages $(CACHE)/bin/product $(CACHE)/images

.PHONY: release
release: ## Make the files of a release from the last commit (VERSION=0.1.0 IMAGES=ghcr.io/you OUT=dir)
	@$(GO) build -o $(CACHE)/bin/release ./hack/release
	@$(CACHE)/bin/release -tags $(TAGS) -version "$(VERSION)" -images "$(or $(IMAGES),localhost)" -out "$(or $(OUT),$(CACHE)/release/$(VERSION))"

.PHONY: release-twice
release-twice: ## Make all files of a release from two clones, compare and check them (RUN=TestOVNImage)
	$(GO) test -tags release -count=1 -timeout 60m -v -run '$(or $(RUN),TestWholeRelease|TestOVNImage)' ./hack/release ./images

.PHONY: install.yaml
install.yaml: ## Make images/install.yaml, the chart's schema of a network and the tables of the docs (3 min the first time, for Helm)
	@$(GO) test ./netmodel -run 'TestKeysOfTheDocs|TestKeysOfTheChart' -count=1 -update
	@$(GO) test ./images -run 'TestKindsOfTheChart' -count=1 -update
	@$(GO) test ./images -run 'TestInstallYAML|TestInstallPage' -count=1 -update

.PHONY: demo
demo: setup ## Show the main job on two nodes, 10 s (KEEP=1 leaves the lab up)
	@$(GO) build -o $(CACHE)/bin/demo ./e2e/demo
	@$(AS_ROOT) $(CACHE)/bin/demo $(if $(KEEP),-keep)

.PHONY: demo-down
demo-down: ## Take down the lab that `make demo KEEP=1` left up
	@$(AS_ROOT) $(CACHE)/bin/demo -down

.PHONY: demo-shell
demo-shell: ## Open a shell in the lab that `make demo KEEP=1` left up
	@$(AS_ROOT) $(CACHE)/bin/demo -shell

.PHONY: test
test: setup $(if $(OVN),withovn) ## Run the tests, with a real OVN (OVN=25.03: Debian 13's, whatever the machine has)
	$(GO) run ./hack/again $(GO) test -timeout 120m -parallel $(LABS) $(if $(AS_ROOT)$(OVN),-exec "$(AS_ROOT) $(if $(OVN),$(CACHE)/bin/withovn $(OVN))") $(FLAGS) $(PKGS)

.PHONY: conformance-policy
conformance-policy: ## Compare what passes between pods with all truth tables of Cyclonus (OVN=25.03), 15 min
	@mkdir -p $(CACHE)
	OVN_MULTINET_TABLES=all $(MAKE) --no-print-directory test OVN=$(OVN) PKGS=./e2e FLAGS="-v -count=1 -run 'TestPolicyTables\z'" 2>&1 \
		| tee $(CACHE)/conformance-policy.log | grep --line-buffered -vE '^ *(=== |--- PASS)'
	@grep -oE 'policy\.tables.*' $(CACHE)/conformance-policy.log; grep -q '^ok' $(CACHE)/conformance-policy.log

.PHONY: withovn
withovn:
	@$(GO) build -o $(CACHE)/bin/withovn ./e2e/withovn

.PHONY: e2e
e2e: setup build withovn ## Run the suite on a real Kubernetes of two nodes (10 min the first time, for its build; LONG=yes: with cert-manager)
	@$(AS_ROOT) $(CACHE)/bin/withovn 25.03 true
	OVN_MULTINET_PRODUCT=$(CACHE)/bin/product OVN_MULTINET_HELM=$$($(LINT) -n helm) $(GO) test -tags kube$(if $(LONG),$(COMMA)long) -count=1 -p 1 -parallel $(CLUSTERS) -timeout 120m $(if $(AS_ROOT),-exec "$(AS_ROOT)") $(if $(RUN),-run "$(RUN)") $(FLAGS) ./e2e/kube/...

.PHONY: e2e-sriov
e2e-sriov: setup ## Run the suite in a virtual machine with real virtual functions (SRIOV_CNI=/path/to/sriov for all of it)
	@$(GO) build -o $(CACHE)/bin/e2e-sriov ./e2e/sriov
	@$(CACHE)/bin/e2e-sriov $(if $(RUN),-run "$(RUN)") $(FLAGS)

.PHONY: e2e-up
e2e-up: setup build ## Bring up that Kubernetes with ovn-multinet in it, and leave it up (CHART=yes: three nodes, the chart with its own OVN)
	@$(GO) build -o $(CACHE)/bin/kube ./e2e/kube/cmd
	@OVN_MULTINET_CHART=$(CHART) OVN_MULTINET_PRODUCT=$(CACHE)/bin/product OVN_MULTINET_HELM=$$($(LINT) -n helm) $(AS_ROOT) $(CACHE)/bin/kube up

.PHONY: e2e-down
e2e-down: ## Take down what `make e2e-up` left up
	@$(AS_ROOT) $(CACHE)/bin/kube down

.PHONY: lint
lint: ## Check formatting, go vet, staticcheck, wrapped errors, module files
	@test -z "$$(gofmt -l .)" || { echo "gofmt -w these:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags failpoint ./internal/failpoint
	$(GO) vet -tags kube ./e2e/kube/...
	$(GO) vet -tags kube,long ./e2e/kube/...
	$(GO) vet -tags sriov ./e2e/sriov/...
	$(GO) vet -tags bench ./e2e/bench/...
	$(GO) vet -tags chaos ./e2e/chaos
	$(GO) vet -tags release ./hack/release ./images
	$(LINT) staticcheck -tags kube,long,sriov,bench,chaos,release ./...
	$(LINT) go-errorlint ./...
	@for m in . hack/tools e2e/certmanager e2e/cniplugins e2e/containerd2 e2e/coredns e2e/kubebin e2e/bench/multus e2e/cyclonus; do (cd $$m && $(GO) mod tidy -diff) || exit 1; done

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in what the programs call
	@sh hack/vulncheck.sh

.PHONY: generate
generate: ## Make the OVSDB models again from ovndb/schema
	$(GO) generate ./ovndb

.PHONY: mutate
mutate: setup ## Apply the listed mutations; a test must fail at each (WITHIN=15m: a random sample)
	$(GO) run ./hack/mutate $(if $(WITHIN),-within $(WITHIN))

.PHONY: conformance
conformance: setup ## Apply the mutations of the specifications' demands; a test must fail at each
	$(GO) run ./hack/mutate hack/mutate/conformance.yaml

.PHONY: mutants
mutants: setup ## Find places to break in some packages and report what no test notices (PKGS=./nad WITHIN=15m)
	$(GO) run ./hack/mutate -find $(if $(WITHIN),-within $(WITHIN)) $(PKGS)

.PHONY: fuzz
fuzz: ## Fuzz every parser that a tenant reaches (INPUTS=300000 each)
	@sh hack/fuzz.sh $(or $(INPUTS),300000)

.PHONY: security
security: setup build ## Run the tests of the boundaries in their long form, fuzz, and print the counts (INPUTS=300000 each)
	@sh hack/security.sh $(or $(INPUTS),300000)

.PHONY: bench
bench: setup build withovn ## Measure beside peers and write docs/performance.md, on an idle machine (TURNS=20 RUN=TestPlain FLAGS=-thick=false)
	@rm -rf $(CACHE)/bench/results
	$(MEASURE) -run "$(or $(RUN),.)" ./e2e/bench -args -results $(CACHE)/bench/results -turns $(or $(TURNS),20) $(FLAGS)
	$(if $(RUN),,$(subst -exec "$(AS_ROOT),-exec "$(AS_ROOT) $(CACHE)/bin/withovn 25.03,$(MEASURE)) -run "TestNorthd|TestEarly|TestRunning|TestPacket|TestPolicyScale|TestServiceScale" ./e2e/bench -args -results $(CACHE)/bench/results -turns $(or $(TURNS),20))
	$(GO) run ./e2e/bench/report $(CACHE)/bench/results docs

.PHONY: bench-quick
bench-quick: setup build ## Check the counts of the report against their limits (e2e/bench/limits.go)
	OVN_MULTINET_BENCH_QUICK=yes $(MEASURE) -run TestCounts ./e2e/bench

# go test with a form of chaos: $(call CHAOS,operations on a raft,orders of transactions,n-th system calls,pods)
CHAOS = $(GO) test -tags chaos -count=1 -timeout 24h -v $(if $(AS_ROOT),-exec "$(AS_ROOT)") $(if $(RUN),-run "$(RUN)") ./e2e/chaos \
	-args -operations $(1) -schedules $(2) -stride $(3) -cycles $(4) $(FLAGS)

.PHONY: chaos-quick
chaos-quick: setup ## Break what pods depend on, count what is lost: the short form, minutes (RUN=TestRaft)
	$(call CHAOS,10000,1000,20,200)

.PHONY: chaos
chaos: setup ## Break what pods depend on, count what is lost: some hours (RUN=TestTwoLeaders FLAGS="-seed 7")
	$(call CHAOS,100000,100000,1,20000)

.PHONY: soak
soak: setup ## A million operations on a raft that is broken again and again
	$(call CHAOS,1000000,1000000,1,100000)

.PHONY: benchmarks
benchmarks: setup ## Run the Go benchmarks and keep their output in the cache folder
	@mkdir -p $(CACHE)/bench
	$(GO) test -run '^$$' -bench . $(if $(AS_ROOT),-exec "$(AS_ROOT)") $(FLAGS) $(PKGS) | tee $(CACHE)/bench/$$(git rev-parse --short HEAD).txt

.PHONY: bench-compare
bench-compare: setup ## Compare the benchmarks with another revision (BASE=main BENCH="netmodel ovnport" COUNT=6)
	@AS_ROOT="$(AS_ROOT)" FLAGS="$(FLAGS)" COUNT=$(COUNT) sh hack/bench.sh $(BASE) $(BENCH)
