# Learning and checking: the C library, the verify tool, the labs and the notebooks.
.PHONY: library

# --- The references as a C library for Python, C and others: reference/quads_reference.h ---
C_LIBRARY := $(BUILD)/libquads_reference.so
C_LIBRARY_OBJECTS := $(patsubst %.cpp,$(BUILD)/pic/%.o,$(wildcard reference/*.cpp) src/grpo.cpp)

library: $(C_LIBRARY) ## the CPU references as a C library, build/libquads_reference.so

$(C_LIBRARY): $(C_LIBRARY_OBJECTS)
	$(CXX) $(LINK_FLAGS) -shared $^ -o $@

$(BUILD)/pic/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(CXX) $(FLAGS) -fPIC -c $< -o $@

-include $(C_LIBRARY_OBJECTS:.o=.d)
