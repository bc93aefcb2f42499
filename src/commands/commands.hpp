// The commands of the program, one a file. Each returns the exit status and throws Error for what the user can mend.
#pragma once

#include <string>
#include <vector>

namespace quads {

int pretrain_command(const std::vector<std::string>& arguments);
int train_command(const std::vector<std::string>& arguments);
int eval_command(const std::vector<std::string>& arguments);
int gap_command(const std::vector<std::string>& arguments);
int reproduce_command(const std::vector<std::string>& arguments);
int chart_command(const std::vector<std::string>& arguments);
int bench_command(const std::vector<std::string>& arguments);
int op_command(const std::vector<std::string>& arguments);

}  // namespace quads
