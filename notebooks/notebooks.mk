# Learning and checking: the C library, the verify tool, the labs and the notebooks.
.PHONY: library verify template lab grade

# --- The references as a C library for Python, C and others: reference/quads_reference.h ---
C_LIBRARY := $(BUILD)/libquads_reference.so
C_LIBRARY_OBJECTS := $(patsubst %.cpp,$(BUILD)/pic/%.o,$(wildcard reference/*.cpp) src/grpo.cpp)

library: $(C_LIBRARY) ## the CPU references as a C library, build/libquads_reference.so

$(C_LIBRARY): $(C_LIBRARY_OBJECTS)
	$(CXX) $(LINK_FLAGS) -shared -Wl,-soname,$(@F) $^ -o $@

$(BUILD)/pic/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(CXX) $(FLAGS) -fPIC -c $< -o $@

# --- A kernel of one's own against the reference ---
OP ?=
KERNEL ?= $(OP:%=my_%.cpp)
VERIFY := $(BUILD)/verify_kernel
VERIFY_OBJECTS := $(patsubst %.cpp,$(BUILD)/%.o,$(wildcard tests/verify/*.cpp))
OPERATIONS := $(basename $(notdir $(wildcard tests/verify/templates/*.cpp)))

# Object files of user code are not kept: they are built again at each call.
verify: $(VERIFY) ## OP=gemm_w4a4 KERNEL=my_kernel.cpp (or .cu): your kernel against the reference, bit for bit
	@$(call check_operation,verify)
	@test -f '$(KERNEL)' || { \
	    echo "There is no file $(KERNEL); make template OP=$(OP) KERNEL=$(KERNEL) writes a start."; exit 1; }
	@mkdir -p $(BUILD)/verify
ifeq ($(suffix $(KERNEL)),.cu)
ifeq ($(NVCC),)
	@echo "$(KERNEL) needs nvcc and a GPU, and one of them was not found here; a .cpp file runs on the CPU."; exit 1
else
	@$(call compile_cu,$(KERNEL),$(OP))
endif
else
	@$(CXX) $(filter-out -MMD -MP,$(FLAGS)) -fPIC -shared $(KERNEL) -o $(BUILD)/verify/$(OP).so
endif
	@$(VERIFY) $(OP) $(BUILD)/verify/$(OP).so

template: ## OP=gemm_w4a4 [KERNEL=my_kernel.cu]: a correct start for a kernel of your own
	@$(call check_operation,template)
	@test ! -e '$(KERNEL)' || { echo "$(KERNEL) exists and is left alone; choose another name with KERNEL=."; exit 1; }
	@sed 's/this_file/$(subst /,\/,$(KERNEL))/' tests/verify/templates/$(OP)$(suffix $(KERNEL)) > '$(KERNEL)'
	@echo "$(KERNEL) is written. Check it with: make verify OP=$(OP) KERNEL=$(KERNEL)"

compile_cu = $(NVCC) $(CUDA_FLAGS) -shared -Xcompiler -fPIC $(1) tests/verify/device.cu -o $(BUILD)/verify/$(2).so

check_operation = case ' $(OPERATIONS) ' in *' $(or $(OP),none) '*) ;; \
	*) echo "Choose an operation: make $(1) OP=name, name one of $(OPERATIONS)."; exit 1 ;; esac

$(VERIFY): $(VERIFY_OBJECTS) $(C_LIBRARY)
	$(CXX) $(LINK_FLAGS) $^ -Wl,-rpath,'$$ORIGIN' -ldl -o $@

-include $(C_LIBRARY_OBJECTS:.o=.d) $(VERIFY_OBJECTS:.o=.d)

# --- Labs: the student's file, the tests tagged [labNN], and the reference beside them ---
# LAB=03 checks notebooks/labs/03_*.cpp; SUBMISSION=folder takes the file from there; SOLUTION=1 checks the reference.
# What the compiler says is kept beside the program, because a grade is given for a file that does not compile, too.
LABS := 01 02 03 04 05 06 07
LAB_TESTS := $(LABS:%=$(BUILD)/tests/labs/lab%.o)
LAB ?=
SUBMISSION ?= notebooks/labs
SOLUTION ?=
LAB_NVCC := $(or $(NVCC),$(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2> /dev/null))

ifneq ($(filter lab grade $(BUILD)/labs/%,$(GOALS)),)
include $(BUILD)/found_tests.mk
endif

lab: $(if $(filter $(LAB),$(LABS)),$(BUILD)/labs/lab$(LAB)) ## LAB=03: your notebooks/labs/03_*.cpp against its tests
ifeq ($(LAB),08)
	@$(lab08)
else
	@case ' $(LABS) ' in *' $(or $(LAB),none) '*) ;; \
	    *) echo "Choose a lab: make lab LAB=NN, NN one of $(LABS) 08."; exit 1 ;; esac
	@$(if $(SOLUTION),LAB_SOLUTION=1) tests/labs/run_lab $< $(LAB)
endif

# Lab 08 is the verify tool on a .cu file.
LAB_CU = $(if $(SOLUTION),tests/verify/templates/gemm_w4a4.cu,$(wildcard $(SUBMISSION)/08_*.cu))
ifeq ($(LAB_CU),)
lab08 = echo "There is no file $(SUBMISSION)/08_*.cu."; exit 1
else ifeq ($(LAB_NVCC),)
lab08 = echo "Lab 08 needs nvcc, which was not found. Install the CUDA toolkit, or pass NVCC=/path/to/nvcc."; exit 1
else ifeq ($(NVCC),)
lab08 = mkdir -p $(BUILD)/labs && $(LAB_NVCC) -std=c++17 -I. -c $(LAB_CU) -o $(BUILD)/labs/lab08.o && \
	echo "$(LAB_CU) compiles. There is no GPU here to run it on."
else
lab: $(if $(filter 08,$(LAB)),$(VERIFY))
lab08 = mkdir -p $(BUILD)/verify && $(call compile_cu,$(LAB_CU),gemm_w4a4) && \
	$(VERIFY) gemm_w4a4 $(BUILD)/verify/gemm_w4a4.so
endif

grade: $(LAB_TESTS) $(BUILD)/tests/main.o $(C_LIBRARY) ## a line of JSON per lab: tests passed, score; SUBMISSION=folder
	@test -d '$(SUBMISSION)' || { echo "There is no folder $(SUBMISSION)." >&2; exit 1; }
	@$(MAKE) -s -k $(LABS:%=$(BUILD)/labs/lab%) > /dev/null 2>&1; \
	for lab in $(LABS); do \
	    $(if $(SOLUTION),LAB_SOLUTION=1) tests/labs/run_lab $(BUILD)/labs/lab$$lab $$lab --json; \
	done

$(BUILD)/labs/lab%: $(BUILD)/tests/labs/lab%.o $(BUILD)/tests/main.o $(C_LIBRARY) FORCE
	@mkdir -p $(@D); rm -f $@
	@set -- '$(SUBMISSION)'/$*_*.cpp; \
	if [ ! -e "$$1" ]; then echo "There is no file $$1."; \
	elif [ $$# -gt 1 ]; then echo "Expected one file, found $$# of them: $$*."; \
	else $(CXX) $(filter-out -MMD -MP,$(FLAGS)) -Wno-unused-parameter "$$1" $(filter-out FORCE,$^) \
	    -Wl,-rpath,'$$ORIGIN/..' $(TEST_LIBS) -o $@; fi > $@.log 2>&1; \
	cat $@.log >&2; test -e $@

# The tests use all of this through scripts; built here, it is built in parallel and once.
.SECONDARY: $(LAB_TESTS)
test: $(C_LIBRARY) $(VERIFY) $(LAB_TESTS)

-include $(LAB_TESTS:.o=.d)

# --- Notebooks: an environment of their own in $(BUILD)/venv ---
.PHONY: notebooks test-notebooks
VENV := $(BUILD)/venv
PYTHON ?= python3
JUPYTER_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

notebooks: $(VENV)/ready $(C_LIBRARY) $(QUADS) ## the lessons notebooks/00 to 11 in a browser
	QUADS_BUILD=$(BUILD) $(VENV)/bin/jupyter lab $(JUPYTER_ROOT) notebooks/00_start_here.ipynb

test-notebooks: $(VENV)/ready $(C_LIBRARY) $(QUADS) ## executes every notebook and the solutions; compares the printed results
	QUADS_BUILD=$(BUILD) $(VENV)/bin/python notebooks/run.py

# Debian keeps venv in a package of its own.
$(VENV)/ready: notebooks/requirements.txt
	@mkdir -p $(@D)
	@$(PYTHON) -m venv --clear $(VENV) > /dev/null 2>&1 || { \
	    as_root=$$(test "$$(id -u)" = 0 || echo sudo -n); \
	    $$as_root apt-get update -q > /dev/null 2>&1; \
	    $$as_root apt-get install -y -q --no-install-recommends python3 python3-venv > /dev/null 2>&1; \
	    $(PYTHON) -m venv --clear $(VENV); } || \
	    { echo "Python's venv is missing; install it with: sudo apt-get install python3 python3-venv"; exit 1; }
	@echo "Installing the packages of notebooks/requirements.txt into $(VENV)"
	@$(VENV)/bin/python -m pip install -q --disable-pip-version-check -r notebooks/requirements.txt || { \
	    echo "pip could not install notebooks/requirements.txt: that takes $(PYTHON) 3.11 or newer (this is" \
	        "$$($(PYTHON) -V 2>&1)) and a package index in reach, PyPI or the one pip is configured for."; exit 1; }
	@touch $@
