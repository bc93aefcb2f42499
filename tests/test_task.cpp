#include "src/task.hpp"

#include <fstream>

#include "src/rollout.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

using namespace quads;

TEST_CASE("The held-out file is what its header says", "[task]") {
    const ChainTask task(TaskConfig{}, "data/heldout.txt");
    REQUIRE(task.heldout().size() == 512);
    for (std::uint32_t i = 0; i < 512; ++i) CHECK(task.heldout()[i].text() == heldout_chain(8, i).text());
}

TEST_CASE("Chains are evaluated from left to right, modulo ten", "[task]") {
    const TemporaryFolder folder;
    std::ofstream(folder.file("chain.txt")) << "# by hand\n3-5*2+9=865\n";
    const ChainTask task(TaskConfig{4}, folder.file("chain.txt"));
    CHECK(task.heldout()[0].response == std::vector<int>{8, 6, 5});
}

TEST_CASE("A held-out file with an error is refused with its place", "[task]") {
    const TemporaryFolder folder;
    const std::string path = folder.file("chain.txt");
    const auto refused = [&](const std::string& line) {
        std::ofstream(path) << line << "\n";
        return refusal([&] { ChainTask(TaskConfig{4}, path); });
    };
    CHECK(refused("3-5*2+9=866").find("line 1") != std::string::npos);  // a wrong running value
    CHECK(refused("3-5*2+9=86").find("10 characters") != std::string::npos);
    CHECK(refused("3-5*2x9=865").find("'x' at column 6") != std::string::npos);
    CHECK(refusal([&] { ChainTask(TaskConfig{}, folder.file("no such file")); }).find("no such file") !=
          std::string::npos);
}

TEST_CASE("Training chains are reproducible and never held out", "[task]") {
    const Chain first = random_chain(4, 9, 1, 0, 0, 0);
    const TemporaryFolder folder;
    std::ofstream(folder.file("chain.txt")) << first.text() << "\n";
    const ChainTask task(TaskConfig{4}, folder.file("chain.txt"));
    CHECK(task.training_chain(9, 0, 0).text() == random_chain(4, 9, 1, 0, 0, 1).text());
    CHECK(task.training_chain(9, 0, 1).text() == random_chain(4, 9, 1, 0, 1, 0).text());
}

TEST_CASE("Responses end by position at their first end token", "[task]") {
    const Chain chain = heldout_chain(4, 0);
    std::vector<int> response = chain.response;
    CHECK(reward(chain, response.data(), 3) == 1.0f);
    CHECK(response_length(response.data(), 3) == 3);
    response[0] = (response[0] + 1) % 10;  // only the last value is judged
    CHECK(reward(chain, response.data(), 3) == 1.0f);
    response[1] = kEndToken;  // right text after an end token does not count
    CHECK(response_length(response.data(), 3) == 2);
    CHECK(reward(chain, response.data(), 3) == 0.0f);
    response[2] = kEndToken;  // nor do several end tokens
    CHECK(response_length(response.data(), 3) == 2);
    const int ended_last[] = {chain.response[0], chain.response[1], kEndToken};
    CHECK(response_length(ended_last, 3) == 3);
    CHECK(reward(chain, ended_last, 3) == 0.0f);
}

TEST_CASE("A tree lists each prompt once, then the fed tokens of its responses", "[task]") {
    const SequenceTree tree = task_tree(TaskConfig{3}, 1, 2);
    const std::vector<Chain> chains = {heldout_chain(3, 0)};
    const std::vector<int> tokens = tree_tokens(tree, chains, {1, 2, 3, 4});
    std::vector<int> expected = chains[0].prompt;
    expected.insert(expected.end(), {1, 3});
    CHECK(tokens == expected);
    CHECK(tree_positions(tree) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 6});
}
