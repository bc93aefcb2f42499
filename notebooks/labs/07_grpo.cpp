// Lab 07: the GRPO loss and its gradient. Read notebook 07 and the formulas at the top of src/grpo.hpp; the loss is the
// negative objective. All in FP32, sums ascending, exact_exp for the ratio. Check with: make lab LAB=07
#include "notebooks/labs/labs.hpp"
#include "reference/exact_math.hpp"

namespace student {

void group_advantages(const float* rewards, int n, int group, float epsilon, float* advantages) {
    throw NotWritten("group_advantages");
}

void policy_gradient(const float* logp_trainer, const float* logp_rollout, const float* advantages, const int* lengths,
                     int sequences, int n, int tokens, float clip_low, float clip_high, float* gradient) {
    throw NotWritten("policy_gradient");
}

}  // namespace student
