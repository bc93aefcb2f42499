# QUADS from scratch: `make` lists the targets. No GPU is needed or assumed; kernels/kernels.mk adds the CUDA targets.
# What is missing (compiler, nlohmann/json, and for the tests Catch2 and Eigen) is found or installed by .ci/setup.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo reproduce experiments test exhaustive bench base clean quads FORCE

# What a user may set: make test SAN=1, make CXX=clang++, make MARCH= (portable code), make BUILD=elsewhere, make JOBS=4.
MARCH ?= native
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SAN ?=
BUILD ?= $(if $(SAN),build/sanitize,build)
ifeq ($(origin CXX),default)
CXX := $(firstword $(notdir $(shell command -v g++ || command -v clang++)) g++)
endif
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(JOBS)
endif

# The bits depend on IEEE arithmetic: no contraction, no fast math. The two -fno flags only drop errno and traps.
ifeq ($(SAN),)
CXXFLAGS ?= -O3
else
CXXFLAGS ?= -O1 -g -fno-omit-frame-pointer
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
endif
NUMERICS := -ffp-contract=off -fno-math-errno -fno-trapping-math
FLAGS = -std=c++17 $(CXXFLAGS) $(MARCH_FLAG) $(NUMERICS) -Wall -Wextra -pthread $(SANITIZE) -MMD -MP -I. $(INCLUDES)
LINK_FLAGS = $(CXXFLAGS) -pthread $(SANITIZE)

QUADS := $(BUILD)/quads
TESTS := $(BUILD)/quads_tests
LIBRARY := $(BUILD)/libquads.a
MAIN := src/commands/main.cpp
LIBRARY_OBJECTS := $(patsubst %.cpp,$(BUILD)/%.o,$(filter-out $(MAIN),$(wildcard reference/*.cpp src/*.cpp src/commands/*.cpp)))
TEST_OBJECTS := $(patsubst %.cpp,$(BUILD)/%.o,$(wildcard tests/*.cpp))
MAIN_OBJECT := $(MAIN:%.cpp=$(BUILD)/%.o)

# Probed once per compiler and build folder; make writes the two files by .ci/setup, reads them and starts again.
#   found.mk       MARCH_FLAG, INCLUDES        found_tests.mk  TEST_INCLUDES, TEST_LIBS
GOALS := $(or $(MAKECMDGOALS),help)
ifneq ($(filter-out help clean,$(GOALS)),)
include $(BUILD)/found.mk
endif
ifneq ($(filter test exhaustive $(TESTS) $(BUILD)/tests/%,$(GOALS)),)
include $(BUILD)/found_tests.mk
endif

# Optional CUDA: may append to LIBRARY_OBJECTS, TEST_OBJECTS and LIBS, and adds its own targets.
LIBS :=
-include kernels/kernels.mk

# The C library, the verify tool, the labs and the notebooks.
-include notebooks/notebooks.mk

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

demo: $(QUADS) ## naive NVFP4 falls, bf16 and QUADS rise: build/demo/report.html, about 2 minutes
	$(QUADS) reproduce --modes bf16,naive,quads --config data/configs/demo.json --out $(BUILD)/demo

reproduce: $(QUADS) ## the five modes, 420 steps, one seed: build/reproduce/report.html, about 10 minutes
	$(QUADS) reproduce --config data/configs/reproduce.json --out $(BUILD)/reproduce

test: $(QUADS) $(TESTS) ## every test; SAN=1 adds the address and undefined-behaviour sanitizers
	@.ci/test $(BUILD)

exhaustive: $(TESTS) ## the slow tests: all 2^32 floats through the codecs
	$(TESTS) "[slow]"

bench: $(QUADS) ## seconds per step and GFLOP/s by part, with the share of this machine's measured peak
	$(QUADS) bench

experiments: $(QUADS) ## tables and curves of data/FINDINGS.md from the committed logs; trains only what is missing
	QUADS=$(QUADS) data/experiments/run

base: $(QUADS) ## regenerates data/base.safetensors, bit for bit
	$(QUADS) pretrain --out data/base.safetensors

quads: $(QUADS) ## only the program, build/quads

clean: ## removes build/
	rm -rf build $(BUILD)

$(QUADS): $(MAIN_OBJECT) $(LIBRARY)
	$(CXX) $(LINK_FLAGS) $^ $(LIBS) -o $@

$(TESTS): $(TEST_OBJECTS) $(LIBRARY)
	$(CXX) $(LINK_FLAGS) $^ $(LIBS) $(TEST_LIBS) -o $@

$(LIBRARY): $(LIBRARY_OBJECTS)
	@rm -f $@
	ar rcs $@ $^

# Neither files, options and reports nor tests are a hot path; at -O1 they compile in half the time.
$(BUILD)/src/%.o $(BUILD)/tests/%.o: private CXXFLAGS := $(CXXFLAGS:-O3=-O1)
$(BUILD)/src/commands/bench.o: private CXXFLAGS := $(CXXFLAGS)  # measures the peak itself
# Catch2's own main function takes a sanitizing compiler minutes, and it is not what is tested.
$(BUILD)/tests/main.o: private SANITIZE :=
$(BUILD)/tests/%.o: private INCLUDES += $(TEST_INCLUDES)
$(BUILD)/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(CXX) $(FLAGS) -c $< -o $@

# Other flags than last time (compiler, MARCH, CXXFLAGS) rebuild everything.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D); echo '$(CXX) $(FLAGS)' | cmp -s - $@ || echo '$(CXX) $(FLAGS)' > $@

$(BUILD)/found.mk: .ci/setup
	@mkdir -p $(@D); .ci/setup program '$(CXX)' '$(MARCH)' > $@

# One after the other: both may have to install.
$(BUILD)/found_tests.mk: .ci/setup $(BUILD)/found.mk
	@mkdir -p $(@D); .ci/setup tests '$(CXX)' > $@

-include $(LIBRARY_OBJECTS:.o=.d) $(TEST_OBJECTS:.o=.d) $(MAIN_OBJECT:.o=.d)
