# The only commands that CI runs. `make help` lists them.

GO      ?= go
GOARCH  ?= $(shell $(GO) env GOARCH)
VERSION ?= 0.1.0
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)

# Everything is static; -trimpath and no build id make builds of the same source
# the same bytes wherever they are made.
export CGO_ENABLED = 0
BUILD   = $(GO) build -trimpath -buildvcs=false
SMALL   = -ldflags '-s -w -buildid= -X main.build=$(VERSION)$(if $(COMMIT),+$(COMMIT))'
STAMP   = -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)'
GUEST   = internal/guest/embed/bin/sos-guest-$(GOARCH)
SPAWNER = internal/driver/native/bin/sos-spawner-$(GOARCH)
TOOL    = $(GO) tool -modfile=tools/tools.mod

TEST_TIMEOUT ?= 10m

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: demo
demo: build deps ## run the complete workflow in real sandboxes and check each result
	@scripts/demo.sh

.PHONY: build
build: $(GUEST) $(SPAWNER) ## bin/sos with guest and spawner inside
	$(BUILD) $(STAMP) -o bin/sos ./cmd/sos

# The Go tool knows what changed; the file is replaced only when its bytes did, so
# that what embeds it is not built again.
.PHONY: FORCE
$(GUEST) $(SPAWNER): FORCE
	@mkdir -p $(@D)
	@GOOS=linux GOARCH=$(GOARCH) $(BUILD) $(SMALL) -o $@.new ./cmd/$(patsubst %-$(GOARCH),%,$(@F))
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

.PHONY: deps
deps: ## install what the demo and the tests need besides Go
	@scripts/deps.sh

.PHONY: test
test: build deps ## vet, unit and end-to-end tests, as root (10 minutes on 2 cores)
	$(GO) vet ./...
	SOS_BIN=$(CURDIR)/bin/sos $(GO) test -p 2 -timeout $(TEST_TIMEOUT) ./...

.PHONY: test-full
test-full: build deps ## everything: also long tests, lint, other systems, a fresh clone (60 minutes)
	$(GO) vet ./...
	SOS_TEST_FULL=1 SOS_BIN=$(CURDIR)/bin/sos $(GO) test -p 2 -timeout 40m ./...
	$(MAKE) lint
	scripts/fresh.sh

.PHONY: race
race: build deps ## the tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 SOS_BIN=$(CURDIR)/bin/sos $(GO) test -p 2 -race -timeout 30m ./...

.PHONY: e2e
e2e: build deps ## the end-to-end scripts only
	SOS_BIN=$(CURDIR)/bin/sos $(GO) test -count=1 ./test/e2e/...

.PHONY: lint
lint: ## the linters (built once from tools/tools.mod, about two minutes)
	$(TOOL) golangci-lint run ./...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (default 20s) each
	@scripts/fuzz.sh

.PHONY: bench
bench: build deps ## the speed against the Docker Engine on this machine
	@scripts/bench.sh

.PHONY: clean
clean: ## remove what was built
	rm -rf bin .cache $(GUEST) $(SPAWNER)
