// Lab 07: the GRPO loss and its gradient. Read notebook 07 and the formulas at the top of src/grpo.hpp; the loss is the
// negative objective. All in FP32, sums ascending, exact_exp for the ratio. Check with: make lab LAB=07
#include "notebooks/labs/labs.hpp"
#include "reference/exact_math.hpp"

namespace student {

void group_advantages(const float*, int, int, float, float*) { throw NotWritten("group_advantages"); }

void policy_gradient(const float*, const float*, const float*, const int*, int, int, int, float, float, float*) {
    throw NotWritten("policy_gradient");
}

}  // namespace student
