# CUDA, where a GPU and nvcc (in PATH or /usr/local/cuda) are found, or with CUDA_ARCH; otherwise, and with NVCC= or
# SAN=1, everything runs on the CPU.
# CUDA_ARCH: compute capabilities to build for, e.g. "90a 120a". Default: the GPUs of this machine; without one, machine
# code for 8.0 and 9.0, and PTX that the driver compiles for later GPUs.
.PHONY: cuda test-gpu

ifndef NVCC
NVCC := $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2> /dev/null)
endif
ifneq ($(SAN),)
NVCC :=
endif

# Without a GPU the program has no use for kernels, which take minutes to compile: they are left out unless asked for.
DETECTED := $(if $(NVCC),$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | tr -d . | \
                    sort -un | sed -nE 's/^[0-9]+$$/&/p' | awk '{ print ($$1 >= 90 ? $$1 "a" : $$1) }'))
ifeq ($(DETECTED)$(CUDA_ARCH)$(filter cuda test-gpu bench-gpu,$(GOALS)),)
NVCC :=
endif

ifeq ($(NVCC),)

LIBRARY_OBJECTS += $(BUILD)/kernels/absent.o
$(BUILD)/kernels/absent.o: kernels/absent.cpp $(BUILD)/flags
	@mkdir -p $(@D); echo "No GPU or no nvcc was found: this build runs on the CPU only."
	$(CXX) $(FLAGS) -c $< -o $@

cuda test-gpu:
	@echo "$@ needs nvcc, which was not found. Install the CUDA toolkit, or pass NVCC=/path/to/nvcc."; exit 1

else

# 9.0 and later have features of their own that need the suffix a, which DETECTED has appended.
CUDA_ARCH ?= $(or $(DETECTED),80 90a)
GENCODE := $(foreach arch,$(CUDA_ARCH),-gencode arch=compute_$(arch),code=sm_$(arch))
ifeq ($(DETECTED)$(filter-out file,$(origin CUDA_ARCH)),)
GENCODE += -gencode arch=compute_90,code=compute_90
endif

# The bits depend on IEEE arithmetic here too: no contraction, true division and square root, subnormals kept.
CUDA_NUMERICS := -fmad=false -prec-div=true -prec-sqrt=true -ftz=false
CUDA_FLAGS = -std=c++17 -O3 $(CUDA_NUMERICS) -lineinfo $(GENCODE) -Xcompiler -Wall,-Wextra -I.
CUDA_HOME := $(patsubst %/bin/,%,$(dir $(realpath $(NVCC))))
CUDA_OBJECTS := $(patsubst %.cu,$(BUILD)/cuda/%.o,$(wildcard kernels/*.cu))
GPU_TESTS := $(BUILD)/quads_gpu_tests
GPU_TEST_OBJECTS := $(patsubst %.cpp,$(BUILD)/%.o,$(wildcard tests/gpu/*.cpp) tests/main.cpp)

LIBRARY_OBJECTS += $(BUILD)/kernels/operations.o $(CUDA_OBJECTS)
LIBS += $(addprefix -L,$(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/targets/*-linux/lib)) -lcudart_static -ldl -lrt

ifneq ($(filter test-gpu $(GPU_TESTS),$(GOALS)),)
include $(BUILD)/found_tests.mk
endif

cuda: $(CUDA_OBJECTS) ## compiles the CUDA kernels; CUDA_ARCH="90a 120a" chooses the GPUs

test-gpu: $(GPU_TESTS) ## every CUDA kernel against its CPU reference, bit for bit
	$(GPU_TESTS)

$(GPU_TESTS): $(GPU_TEST_OBJECTS) $(LIBRARY)
	$(CXX) $(LINK_FLAGS) $^ $(LIBS) $(TEST_LIBS) -o $@

$(BUILD)/cuda/%.o: %.cu $(BUILD)/cuda_flags
	@mkdir -p $(@D)
	$(NVCC) $(CUDA_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

$(BUILD)/cuda_flags: FORCE
	@mkdir -p $(@D); echo '$(NVCC) $(CUDA_FLAGS)' | cmp -s - $@ || echo '$(NVCC) $(CUDA_FLAGS)' > $@

-include $(GPU_TEST_OBJECTS:.o=.d)

# The kernel ladders and their benchmark.
-include kernels/ladder/ladder.mk

endif
