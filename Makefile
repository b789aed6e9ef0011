# Every target installs what it needs. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# the pinned Node that npm brings, before any Node of the machine
export PATH := $(CURDIR)/node_modules/.bin:$(PATH)

INSTALLED := node_modules/.installed

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# errors only: that the machine's own Node is older than the project's is no news
$(INSTALLED): package.json package-lock.json
	npm ci --no-fund --no-audit --loglevel=error
	@touch $@

.PHONY: install
install: $(INSTALLED) ## Install the npm packages, the pinned Node among them

##@ Use

.PHONY: demo
demo: $(INSTALLED) ## Show the operator at work, without cluster, hypervisor or container engine
	@node hack/demo.ts

.PHONY: demo-libvirt
demo-libvirt: $(INSTALLED) ## The same with a real API server, a real libvirtd and a real VM (root, Debian or Ubuntu)
	@node hack/demo-libvirt.ts

.PHONY: stub-libvirt
stub-libvirt: $(INSTALLED) ## Run the stub of a libvirt host and print how to reach it (UNIX=path: by virsh, too)
	@node hack/stub-libvirt.ts $(if $(UNIX),--unix '$(UNIX)')

# KVM_SSH_KEY and KVM_KNOWN_HOSTS of the command line are in the environment of its recipe
.PHONY: kvm-ssh-secret
kvm-ssh-secret: $(INSTALLED) ## Apply the Secret of both libvirt types (KVM_SSH_KEY, KVM_KNOWN_HOSTS), once its files are sound
	@node hack/kvm-ssh-secret.ts

##@ Check

.PHONY: check
check: typecheck lint format-check generate-check shellcheck ## All static checks

.PHONY: typecheck
typecheck: $(INSTALLED)
	tsc --noEmit -p .

.PHONY: lint
lint: $(INSTALLED)
	eslint . --max-warnings 0

.PHONY: format-check
format-check: $(INSTALLED)
	prettier --check --log-level warn .

.PHONY: format
format: $(INSTALLED) ## Format all files
	prettier --write --log-level warn .

.PHONY: generate
generate: $(INSTALLED) ## Write the generated files: crds/ and the libvirt protocol table
	node hack/gen-crds.ts
	node hack/gen-libvirt-protocol.ts

.PHONY: generate-check
generate-check: $(INSTALLED)
	node hack/gen-crds.ts --check
	node hack/gen-libvirt-protocol.ts --check

.PHONY: shellcheck
shellcheck:
	@if command -v shellcheck >/dev/null; then git ls-files -z hack .ci | xargs -0 grep -lZE '^#!.*(bash|sh)$$' | xargs -0 shellcheck; \
	elif [[ $${CI:-} == true ]]; then echo 'shellcheck is missing' >&2; exit 1; \
	else echo 'shellcheck: left out, it is not installed'; fi

##@ Test

.PHONY: test
test: $(INSTALLED) ## All tests that this machine can run; says what it leaves out and why
	@node hack/test.ts unit integration e2e

.PHONY: test-unit
test-unit: $(INSTALLED) ## Pure code
	@node hack/test.ts unit

.PHONY: test-integration
test-integration: $(INSTALLED) ## Loopback sockets: in-process Kubernetes API and libvirt host
	@node hack/test.ts integration

.PHONY: test-e2e-libvirt
test-e2e-libvirt: $(INSTALLED) ## Real API server, libvirtd and VMs (root, Debian or Ubuntu; INSTALL=1 installs packages)
	@node hack/test.ts e2e

.PHONY: test-integration-kvm2 test-integration-kvm
test-integration-kvm2: $(INSTALLED) ## kvm2 on a host of yours, KVM_TEST_HOST (beelink) and so on (CHECK=1: make nothing there)
test-integration-kvm: $(INSTALLED) ## The same of type kvm
test-integration-kvm2 test-integration-kvm: test-integration-%:
	@node hack/test.ts hosts -- test/hosts/$*.test.ts $(if $(CHECK),-t 'is checked without a trace')

.PHONY: bench-libvirt
bench-libvirt: $(INSTALLED) ## Time from apply to Ready and memory, on a real API server, libvirtd and VM
	@node bench/libvirt.ts

.PHONY: bench-upload
bench-upload: $(INSTALLED) ## An upload beside virsh and a bare ssh pipe, on a real libvirtd (RUNS, SIZE_MIB, CIPHER)
	@node bench/upload.ts
