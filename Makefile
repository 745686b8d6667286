# Culvert. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Where root works in somebody else's checkout git refuses to answer, and go
# would not build; the version comes from -ldflags.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

BIN     := bin/culvert
IMAGE   := ghcr.io/culvert-net/culvert
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# gRPC's traces bring a template engine that calls methods by name, so that the
# linker would have to keep every method of every package: 11 MB.
TAGS    := grpcnotrace
EVENTS  := .cache/test.json
LINT    := go tool -modfile=tools/lint/go.mod
PROSE   := $(wildcard *.md) docs dist examples srv6 gtpu cmd internal
SUM     := go tool gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg

PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
ARCHES     ?= amd64 arm64

FRAMES  ?= 10000000
ROUNDS  ?= 10

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' Makefile

.PHONY: build
build: ## build bin/culvert, bin/culvert-cni and bin/culvert-lab
	@CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $(dir $(BIN)) ./cmd/culvert ./cmd/culvert-cni ./cmd/culvert-lab

.PHONY: soft
soft: ## build bin/culvert-soft, the data path as a program of user space, for comparison
	@tools/need.sh test
	@mkdir -p $(dir $(BIN))
	@bpf/soft/build.sh $(dir $(BIN))culvert-soft

.PHONY: size
size: ## size of culvert and culvert-cni, and what it consists of (docs/reference/size.md)
	@tools/size.sh '$(TAGS)'

.PHONY: packages
packages: ## write deb and rpm of culvert and culvert-lab to bin/packages, for amd64 and arm64 (ARCHES=amd64)
	@rm -rf $(dir $(BIN))packages
	@tools/package/build.sh $(dir $(BIN))packages '$(VERSION)' $(ARCHES)
	@ls $(dir $(BIN))packages

.PHONY: release
release: ## write a release to bin/release, of a commit with a tag: packages, images, charts, SBOM, notes, sums (FORCE=1: of any; SIGN_WITH=key)
	@tools/package/release.sh $(dir $(BIN))release '$(VERSION)'

.PHONY: publish
publish: ## publish bin/release at GitHub, by gh, which needs the tag there
	@gh release create '$(VERSION)' --verify-tag --title '$(VERSION)' --notes-file $(dir $(BIN))release/notes.md $(dir $(BIN))release/*

.PHONY: reproducible
reproducible: ## fail where two builds of this commit, in two folders, differ
	@tools/package/reproducible.sh

.PHONY: install
install: build manual ## install programs, unit, manual pages and completion below PREFIX=/usr/local (DESTDIR=folder stages)
	@for part in culvert culvert-lab; do PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' tools/install.sh $(dir $(BIN)) $$part '$(DESTDIR)' || exit 1; done

.PHONY: uninstall
uninstall: ## remove what `make install` of this tree installed; configuration and state stay
	@$(MAKE) --no-print-directory build manual
	@PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' tools/uninstall.sh $(dir $(BIN)) '$(DESTDIR)'

.PHONY: manual
manual: # bin/manual: manual pages and completion of the commands
	@CGO_ENABLED=0 go run -trimpath -tags '$(TAGS)' ./tools/manual $(dir $(BIN))manual

.PHONY: image
image: build ## write bin/culvert-image.tar, the cluster's image of this version, which ctr and podman take
	@go run ./tools/image dist/kubernetes/Containerfile '$(IMAGE):$(VERSION)' $(dir $(BIN))culvert-image.tar
	@echo "$(dir $(BIN))culvert-image.tar is $(IMAGE):$(VERSION)"

.PHONY: manifest
manifest: ## write bin/culvert.yaml and bin/uninstall.yaml, the cluster's manifests with this version's image
	@mkdir -p $(dir $(BIN))
	@for name in culvert uninstall; do \
		sed 's#$(IMAGE):latest#$(IMAGE):$(VERSION)#' dist/kubernetes/$$name.yaml >$(dir $(BIN))$$name.yaml; done

.PHONY: demo
demo: ## run the gateway and the slices laboratory and show their results
	@tools/need.sh run
	@echo "culvert: building $(BIN) (the first time also fetches the Go modules)"
	@$(MAKE) --no-print-directory build
	@$(BIN) lab run gateway
	@$(BIN) lab run slices

.PHONY: test
test: ## everything that CI runs: build, lint, generated files, all tests
	@tools/need.sh test
	@$(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory generated
	@mkdir -p $(dir $(EVENTS))
	@$(SUM) --jsonfile $(EVENTS) -- -count=1 -p 3 -timeout 25m ./...
	@! grep '"Action":"skip".*"Test":' $(EVENTS) || { echo "culvert: root has no reason to skip these"; exit 1; }

.PHONY: lint
lint: ## format, bugs, comments, words, commit subjects, known vulnerabilities
	@tools/need.sh test
	@$(LINT) golangci-lint run ./...
	@shellcheck $$(find . -name '*.sh' -not -path './bin/*' -not -path './.cache/*') .ci/run
	@$(LINT) vale --output=line $(PROSE)
	@tools/web.sh check
	@tools/lint/c.sh
	@tools/lint/commits.sh
	@tools/lint/vulnerabilities.sh

.PHONY: generate
generate: ## make the objects of bpf/, the management API, the web page, the schema and docs/reference/behaviors.md
	@tools/need.sh test
	@go generate ./srv6 # the header that the objects are made of
	@go generate ./...

.PHONY: generated
generated: ## fail where a committed file is not what generate makes
	@tools/generated.sh

.PHONY: fuzz
fuzz: ## FRAMES=10000000 through the data path, its model and sanitizers; PFCP; Go fuzz targets
	@tools/need.sh test
	@tools/fuzz.sh $(FRAMES)

.PHONY: e2e
e2e: ## every laboratory, and experiments of the benchmark; the first time it builds Kubernetes, etcd, containerd and Helm; CORE=folder: with the real cores in it, too
	@tools/need.sh e2e
	@tools/cluster/build.sh all
	@tests=$$(tools/tagged.sh apiserver,helm internal/kube dist/upf) && $(SUM) -- -count=1 -timeout 10m $$tests
	@tests=$$(tools/tagged.sh e2e internal/bench) && $(SUM) -- -count=1 -p 1 -timeout 20m $$tests
	@$(MAKE) --no-print-directory build
	@tests=$$(tools/tagged.sh e2e dist/prometheus) && $(SUM) -- -count=1 -timeout 10m $$tests
	@$(MAKE) --no-print-directory packages ARCHES="$$(go env GOARCH)" # which the laboratory install installs
	@rm -rf $(dir $(BIN))packages-before
	@tools/package/other-layout.sh $(dir $(BIN))packages-before
	@can=" $$($(BIN) lab list --core "$(CORE)" | awk '{ printf "%s ", $$1 }')"; \
	for lab in $$($(BIN) lab list | awk 'NR > 1 && $$1 != "conformance" { print $$1 }'); do \
		case $$can in *" $$lab "*) ;; *) echo "$$lab is left out: CORE has no programs of that core (docs/how-to/real-cores.md)"; continue;; esac; \
		core=; \
		case $$lab in free5gc*|open5gs*) core="$(CORE)";; esac; \
		$(BIN) lab run "$$lab" $${core:+--core "$$core"} || exit 1; \
	done
	@$(BIN) lab run install --packages-before $(dir $(BIN))packages-before # whose tables have another layout

.PHONY: e2e-kubernetes
e2e-kubernetes: ## attacks on a cluster's tenants, and Kubernetes' own tests of the network; what has passed is not made again; the first time it builds e2e.test
	@tools/need.sh e2e
	@tools/cluster/build.sh conformance
	@$(MAKE) --no-print-directory build
	@$(BIN) lab run tenants
	@$(BIN) lab run conformance

.PHONY: soak
soak: ## restart, kill, upgrade and reconfigure under load, ROUNDS=10 times; the engine by BGP; designs of a UPF; probes under load for 10 minutes
	@tools/need.sh test
	@$(SUM) -- -count=$(ROUNDS) -timeout 0 -run '^(TestHitless|TestCyclesLeaveNothing|TestNextDaemonSweeps|TestDaemon)$$' ./internal/agent ./cmd/culvert
	@tests=$$(tools/tagged.sh soak internal cmd) && $(SUM) -- -count=1 -timeout 0 $$tests

.PHONY: bench
bench: ## experiments of all four papers and more, with one report, in an hour and a half; its path is the last line (DIR=folder)
	@tools/need.sh run
	@$(MAKE) --no-print-directory build soft
	@$(BIN) bench suite $(if $(DIR),--dir "$(DIR)")

# The baseline that is committed is from another machine, whose CPU may have other ratios.
.PHONY: bench-ci
bench-ci: CI := $(or $(DIR),culvert-bench/ci-$(shell date +%Y%m%d-%H%M%S))
bench-ci: ## what tunnels cost beside L2 forwarding, in five minutes; fails if it is more than in BASELINE=folder, by MARGIN=0.05 and by chance (DIR=folder)
	@tools/need.sh run
	@$(MAKE) --no-print-directory build
	@$(BIN) bench run ci --dir "$(CI)"
	@$(BIN) bench compare --ratios --margin $(or $(MARGIN),$(if $(BASELINE),0.05,0.25)) --out "$(CI)/comparison" "$(or $(BASELINE),docs/results/ci)" "$(CI)"

.PHONY: clean
clean: ## remove what was built
	@rm -rf bin .cache
