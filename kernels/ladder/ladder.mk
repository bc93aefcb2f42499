# The ladders (kernels/ladder) join the library; their benchmark (kernels/bench) is a program of its own, the only one
# that uses cuBLAS. BENCH_ARGS: arguments of the benchmark.
.PHONY: bench-gpu

LADDER_OBJECTS := $(patsubst %.cu,$(BUILD)/cuda/%.o,$(wildcard kernels/ladder/*.cu))
BENCH_OBJECTS := $(patsubst %.cu,$(BUILD)/cuda/%.o,$(wildcard kernels/bench/*.cu))
LIBRARY_OBJECTS += $(LADDER_OBJECTS)

cuda: $(LADDER_OBJECTS)

bench-gpu: $(BUILD)/quads_gpu_bench ## kernels beside cuBLAS and the card's limits, into data/gpu/bench-h200.json
	$< --out data/gpu/bench-h200.json $(BENCH_ARGS)

$(BUILD)/quads_gpu_bench: $(BENCH_OBJECTS) $(LIBRARY)
	$(CXX) $(LINK_FLAGS) $^ $(LIBS) -lcublas -lcublasLt -o $@

-include $(LADDER_OBJECTS:.o=.d) $(BENCH_OBJECTS:.o=.d)
