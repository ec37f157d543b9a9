# Everything a contributor runs. `make` alone lists the targets.
#
# Tools are run with `go run module@version`, so that nothing of theirs enters
# go.mod and everybody uses the same ones.

GOLANGCI_LINT_VERSION := v2.15.0
BUF_VERSION           := v1.75.0
GORELEASER_VERSION    := v2.17.1

GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
BUF           := go run github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
GORELEASER    := go run github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION)

# The version comes from the build information that Go itself records; this is
# what the programs say where there is none, as in a build from an archive.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION)
PROGRAMS := devproxyd devproxyctl devproxy-shim

# The programs need no C; only the race detector does.
BUILD := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'
RACE  := CGO_ENABLED=1 go test -race -shuffle=on

# How long each fuzz target runs, which benchmarks, and which groups of rows of
# integration/bench.
FUZZTIME ?= 30s
BENCH    ?= .
ROWS     ?= .

# What `make chaos` lives through: worlds of successive seeds, from a random one
# if none is given, until the duration is over.
SEED     ?=
DURATION ?= 10m

# Where `make man` puts the man pages.
MAN ?= bin/man

# What `make breaking` compares the protobuf contract with.
BREAKING_AGAINST ?= .git\#branch=main

# The black-box tests stand alone: they are never cached, since what they test
# are programs that they build themselves.
UNIT_PACKAGES = $(shell go list ./... | grep -v /integration)
NODE := integration/testdata/node
CONFORMANCE := integration/testdata/conformance

# npm's scripts are off: no package that the tests use needs one, and a test
# machine should run no code at install time.
NPM_CI := npm ci --ignore-scripts --no-audit --no-fund

# What npm writes when it is done, so that a folder it left half full is filled.
INSTALLED := node_modules/.package-lock.json

# The promised time bounds are those of a program without the race detector.
BOUNDS := ^(TestCallInFlight|TestShimEndsWithItsClient|TestFirstAnswerComesAtOnce)$$

# Debian does not put its 64-bit wine on PATH, and what is there complains about
# the 32-bit one. Nothing else needs wine.
WINE ?= $(firstword $(wildcard /usr/lib/wine/wine64) $(shell command -v wine64 || command -v wine))

# Not what is generated, and not what others put below node_modules.
GO_FILES = $(shell find . -name '*.go' -not -path './api/devproxy/*' -not -path '*/node_modules/*' -not -path './.*/*')

.DEFAULT_GOAL := help
.PHONY: help build install demo test test-short integration conformance chaos wine fmt fmt-check vet lint \
	docs proto check-proto breaking fuzz bench bench-docs man completions snapshot check-release clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build the three programs into bin/
	@mkdir -p bin
	$(BUILD) -o bin/ $(PROGRAMS:%=./cmd/%)

install: ## Install the three programs into GOBIN
	CGO_ENABLED=0 go install -trimpath -ldflags '$(LDFLAGS)' $(PROGRAMS:%=./cmd/%)

demo: build ## Run the main job on an example backend, step by step
	bin/devproxyd demo

test: $(NODE)/$(INSTALLED) ## Run every test with the race detector (installs what they need)
	$(RACE) $(UNIT_PACKAGES)
	$(RACE) -count=1 -timeout=20m ./integration/...
	go test -count=1 -run '$(BOUNDS)' ./integration
	go test -count=1 -run '^TestBudget$$' ./integration/bench

test-short: ## Run the tests that start no other program
	go test -short ./...

integration: $(NODE)/$(INSTALLED) ## Run the black-box tests; RUN=regexp chooses some
	$(RACE) -count=1 -timeout=20m -v $(if $(RUN),-run '$(RUN)') ./integration/...

conformance: $(CONFORMANCE)/$(INSTALLED) ## Run the official conformance scenarios, directly and through devproxy
	$(RACE) -count=1 -timeout=10m -v -run '^TestConformance$$' ./integration

chaos: ## Run the fault test for DURATION, from SEED on
	CGO_ENABLED=1 go test -race -count=1 -v -timeout=0 ./integration/chaos $(if $(SEED),-seed $(SEED)) -duration $(DURATION)

%/$(INSTALLED): %/package-lock.json %/package.json
	cd $* && $(NPM_CI)
	@touch $@

wine: ## Run Windows programs and tests under wine, where that is installed (no part of CI)
	@test -n '$(WINE)' || { echo 'no wine here; on Debian: apt-get install --no-install-recommends wine wine64' >&2; exit 1; }
	WINE='$(WINE)' go test -count=1 -v -timeout=60m ./integration/wine

fmt: ## Format the Go and protobuf sources
	gofmt -w $(GO_FILES)
	$(BUF) format -w

fmt-check: ## Fail if a Go source is not formatted
	@unformatted="$$(gofmt -l $(GO_FILES))"; \
	if [ -n "$$unformatted" ]; then \
		printf 'not formatted; run make fmt:\n%s\n' "$$unformatted" >&2; exit 1; \
	fi

vet: ## Vet for Linux, macOS and Windows
	CGO_ENABLED=0 GOOS=linux go vet ./...
	CGO_ENABLED=0 GOOS=darwin go vet ./...
	CGO_ENABLED=0 GOOS=windows go vet ./...

lint: ## Run golangci-lint
	$(GOLANGCI_LINT) run ./...

docs: ## Write the pages of docs/ that are made from the code
	go test ./daemon -run '^TestGeneratedDocs$$' -update

proto: ## Generate api/ from proto/
	$(BUF) generate

check-proto: proto ## Fail if proto/ breaks a rule or api/ is not what it generates
	$(BUF) lint
	$(BUF) format --diff --exit-code
	git diff --exit-code -- api
	@new="$$(git ls-files --others --exclude-standard -- api/devproxy)"; \
	if [ -n "$$new" ]; then \
		printf 'generated but not committed:\n%s\n' "$$new" >&2; exit 1; \
	fi

breaking: ## Fail if proto/ breaks peers that speak main's contract
	$(BUF) breaking --against '$(BREAKING_AGAINST)'

fuzz: ## Run every fuzz target for FUZZTIME each
	@set -e; for package in $(UNIT_PACKAGES); do \
		for target in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
			echo "==> $$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime '$(FUZZTIME)' "$$package"; \
		done; \
	done

MEASURE = go test -count=1 -v -timeout=30m -run '^TestMeasure$$' ./integration/bench -measure -rows '$(ROWS)'

bench: $(NODE)/$(INSTALLED) ## Measure the programs beside their absence (ROWS), then run the benchmarks (BENCH)
	$(MEASURE)
	go test -run '^$$' -bench '$(BENCH)' -benchmem $(UNIT_PACKAGES)

bench-docs: $(NODE)/$(INSTALLED) ## Measure, and write what comes out into docs/performance.md
	$(MEASURE) -page ../../docs/performance.md

man: ## Write the man pages into MAN
	@rm -rf '$(MAN)' && mkdir -p '$(MAN)/gz'
	go test -count=1 -ldflags '$(PROGRAMS:%=-X github.com/debugmcp/devproxy/cmd/%.version=$(VERSION))' \
		-run '^TestManual$$' $(PROGRAMS:%=./cmd/%) -args -man '$(abspath $(MAN))' -date "$$(git log -1 --format=%cs)"
	@cd '$(MAN)' && for page in *.1; do gzip -9nc "$$page" > "gz/$$page.gz"; done
	@echo 'the pages are in $(MAN); "man -l $(MAN)/devproxyctl.1" shows one'

completions: build ## Write the completion scripts into bin/completions
	@mkdir -p bin/completions
	@for program in devproxyctl devproxyd; do \
		bin/$$program completion bash > bin/completions/$$program.bash && \
		bin/$$program completion zsh > bin/completions/_$$program && \
		bin/$$program completion fish > bin/completions/$$program.fish && \
		bin/$$program completion powershell > bin/completions/$$program.ps1 || exit 1; \
	done

snapshot: ## Make the archives and packages of a release in dist/, and release nothing
	$(GORELEASER) release --snapshot --clean

check-release: ## Check the configuration of releases
	$(GORELEASER) check

clean: ## Remove what the other targets made
	rm -rf bin dist $(NODE)/node_modules $(CONFORMANCE)/node_modules
