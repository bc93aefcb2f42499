#include "src/task.hpp"

#include <algorithm>
#include <fstream>

#include "src/rollout.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

using namespace quads;

namespace {

// The value of "3+5*2-7" left to right, in plain integers and reduced only once, which
// is the same modulo 10.
int evaluate(const std::string& program) {
    long value = program[0] - '0';
    for (std::size_t i = 1; i < program.size(); i += 2) {
        const long digit = program[i + 1] - '0';
        value = program[i] == '+' ? value + digit : program[i] == '-' ? value - digit : value * digit;
    }
    return static_cast<int>((value % 10 + 10) % 10);
}

}  // namespace

TEST_CASE("The held-out files are what their headers say", "[task]") {
    for (const std::string config : {"reproduce", "sketch"}) {
        const RunConfig run = load_config("data/configs/" + config + ".json", {});
        const Task task(run.task, run.heldout);
        REQUIRE(task.heldout().size() == 512);
        for (std::uint32_t i = 0; i < 512; ++i) {
            CHECK(task.heldout()[i].text() == heldout_problem(run.task, i).text());
        }
    }
}

TEST_CASE("Chains are evaluated from left to right, modulo ten", "[task]") {
    const TemporaryFolder folder;
    std::ofstream(folder.file("chain.txt")) << "# by hand\n3-5*2+9=865\n";
    const Task task(TaskConfig{4}, folder.file("chain.txt"));
    CHECK(task.heldout()[0].response == std::vector<int>{8, 6, 5});
}

TEST_CASE("The holes of a sketch are filled in turn, with the running values between them", "[task]") {
    const TemporaryFolder folder;
    std::ofstream(folder.file("sketch.txt")) << "3+?*2-?=95867\n";  // 3 + 5 = 8, * 2 = 6, - 7 = 9
    const TaskConfig four{4, TaskKind::sketch};
    const Problem problem = Task(four, folder.file("sketch.txt")).heldout()[0];
    CHECK(problem.prompt == std::vector<int>{3, 10, 15, 12, 2, 11, 15, 13, 9});
    CHECK(problem.response == std::vector<int>{5, 8, 6, 7});
    const auto rewarded = [&](std::vector<int> response) { return reward(four, problem, response.data(), 4); };
    CHECK(rewarded({5, 8, 6, 7}) == 1.0f);
    CHECK(rewarded({5, 0, 0, 7}) == 1.0f);  // only the program counts, not what is said about it
    CHECK(rewarded({0, 3, 6, 7}) == 1.0f);  // another program with the value
    CHECK(rewarded({5, 8, 6, 8}) == 0.0f);
    for (int place = 0; place < 4; ++place) {
        for (int token : {10, 13, kEndToken, 15, -1}) {
            std::vector<int> malformed = problem.response;
            malformed[place] = token;
            CHECK(rewarded(malformed) == 0.0f);
        }
    }
    for (const char* line : {"3+?*2-?=95868", "3+?*2-?=85867", "3+?*2-?=9586", "3+5*2-?=95867", "3+?*2-?=9586?"}) {
        INFO(line);
        std::ofstream(folder.file("sketch.txt")) << line << "\n";
        CHECK(refusal([&] { Task(four, folder.file("sketch.txt")); }).find("line 1") != std::string::npos);
    }
}

TEST_CASE("The verifier of a sketch agrees with an evaluator of text for every response", "[task]") {
    const TaskConfig four{4, TaskKind::sketch};
    for (std::uint32_t i = 0; i < 6; ++i) {
        const Problem problem = heldout_problem(four, i);
        int right = 0, differences = 0;
        for (int r = 0; r < 16 * 16 * 16 * 16; ++r) {
            const int response[] = {r >> 12, r >> 8 & 15, r >> 4 & 15, r & 15};
            bool expected = std::all_of(response, response + 4, [](int token) { return token < 10; });
            if (expected) {
                std::string program = problem.text().substr(0, 7);
                program[2] = static_cast<char>('0' + response[0]);
                program[6] = static_cast<char>('0' + response[3]);
                expected = evaluate(program) == problem.prompt.back();
            }
            right += expected;
            differences += (reward(four, problem, response, 4) == 1.0f) != expected;
        }
        INFO(problem.text());
        CHECK(differences == 0);
        CHECK(right == 100 * right_answers(four, problem));  // each with any of 100 pairs of notes
    }
}

TEST_CASE("What pretraining shows is right, complete and never held out", "[task]") {
    for (const TaskConfig config : {TaskConfig{8, TaskKind::chain}, TaskConfig{6, TaskKind::sketch},
                                    TaskConfig{2, TaskKind::sketch}, TaskConfig{3, TaskKind::sketch},
                                    TaskConfig{2, TaskKind::chain}}) {
        const TemporaryFolder folder;
        std::ofstream(folder.file("one.txt")) << heldout_problem(config, 0).text() << "\n";
        const Task task(config, folder.file("one.txt"));
        for (const Problem& problem : task.training_problems(3, 0x40000000u, 512)) {
            CHECK(static_cast<int>(problem.prompt.size()) == prompt_tokens(config));
            CHECK(static_cast<int>(problem.response.size()) == response_tokens(config));
            CHECK(reward(config, problem, problem.response.data(), response_tokens(config)) == 1.0f);
            CHECK(right_answers(config, problem) >= 1);
            CHECK(problem.prompt != task.heldout()[0].prompt);
        }
    }
}

TEST_CASE("A held-out file with an error is refused with its place", "[task]") {
    const TemporaryFolder folder;
    const std::string path = folder.file("chain.txt");
    const auto refused = [&](const std::string& line) {
        std::ofstream(path) << line << "\n";
        return refusal([&] { Task(TaskConfig{4}, path); });
    };
    CHECK(refused("3-5*2+9=866").find("line 1") != std::string::npos);  // a wrong running value
    CHECK(refused("3-5*2+9=86").find("10 characters") != std::string::npos);
    CHECK(refused("3-5*2x9=865").find("'x' at column 6") != std::string::npos);
    CHECK(refusal([&] { Task(TaskConfig{}, folder.file("no such file")); }).find("no such file") !=
          std::string::npos);
}

TEST_CASE("Training problems are reproducible and never held out", "[task]") {
    const Problem first = random_problem(TaskConfig{4}, 9, 1, 0, 0, 0);
    const TemporaryFolder folder;
    std::ofstream(folder.file("chain.txt")) << first.text() << "\n";
    const Task task(TaskConfig{4}, folder.file("chain.txt"));
    CHECK(task.training_problem(9, 0, 0).text() == random_problem(TaskConfig{4}, 9, 1, 0, 0, 1).text());
    CHECK(task.training_problem(9, 0, 1).text() == random_problem(TaskConfig{4}, 9, 1, 0, 1, 0).text());
}

TEST_CASE("Responses end by position at their first end token", "[task]") {
    const Problem chain = heldout_problem(TaskConfig{4}, 0);
    std::vector<int> response = chain.response;
    CHECK(reward(TaskConfig{4}, chain, response.data(), 3) == 1.0f);
    CHECK(response_length(response.data(), 3) == 3);
    response[0] = (response[0] + 1) % 10;  // only the last value is judged
    CHECK(reward(TaskConfig{4}, chain, response.data(), 3) == 1.0f);
    response[1] = kEndToken;  // right text after an end token does not count
    CHECK(response_length(response.data(), 3) == 2);
    CHECK(reward(TaskConfig{4}, chain, response.data(), 3) == 0.0f);
    response[2] = kEndToken;  // nor do several end tokens
    CHECK(response_length(response.data(), 3) == 2);
    const int ended_last[] = {chain.response[0], chain.response[1], kEndToken};
    CHECK(response_length(ended_last, 3) == 3);
    CHECK(reward(TaskConfig{4}, chain, ended_last, 3) == 0.0f);
}

TEST_CASE("A tree lists each prompt once, then the fed tokens of its responses", "[task]") {
    const SequenceTree tree = task_tree(TaskConfig{3}, 1, 2);
    const std::vector<Problem> problems = {heldout_problem(TaskConfig{3}, 0)};
    const std::vector<int> tokens = tree_tokens(tree, problems, {1, 2, 3, 4});
    std::vector<int> expected = problems[0].prompt;
    expected.insert(expected.end(), {1, 3});
    CHECK(tokens == expected);
    CHECK(tree_positions(tree) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 6});
}
